/* RENAME_EXCHANGE reads both sides. */
#include "guest.h"

#include <linux/fs.h>

int main(void)
{
	put("a", "1");
	put("b", "2");
	if (syscall(SYS_renameat2, AT_FDCWD, "a", AT_FDCWD, "b", RENAME_EXCHANGE) < 0)
		skip("no RENAME_EXCHANGE here");
	expect("READ", "a");
	expect("READ", "b");
	expect_two("RENAME", "a", "b");
	return 0;
}
