/* A loop of symlinks: each was looked at, nothing was opened. */
#include "guest.h"

int main(void)
{
	must(symlink("b", "a") == 0 && symlink("a", "b") == 0);
	must(open("a", O_RDONLY) < 0 && errno == ELOOP);
	expect("LINK", "a");
	expect("LINK", "b");
	expect("! READ", "a");
	return 0;
}
