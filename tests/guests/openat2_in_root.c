/* RESOLVE_IN_ROOT makes a folder the root of one lookup. */
#include "guest.h"

#include <linux/openat2.h>

int main(void)
{
	struct open_how how = {.flags = O_RDONLY, .resolve = RESOLVE_IN_ROOT};

	must(mkdir("root", 0755) == 0);
	put("root/file", "x");
	must(symlink("/file", "root/link") == 0);
	int root = open("root", O_PATH);
	must(root >= 0);
	must(syscall(SYS_openat2, root, "/../link", &how, sizeof how) >= 0);
	must(syscall(SYS_openat2, root, "/absent", &how, sizeof how) < 0);
	expect("LINK", "root/link");
	expect("READ", "root/file");
	expect("MISSED", "root/absent");
	return 0;
}
