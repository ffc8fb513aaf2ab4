/* ".." after a symlink is the parent of where it leads, not of where it lies. */
#include "guest.h"

int main(void)
{
	must(mkdir("a", 0755) == 0 && mkdir("a/deep", 0755) == 0 && symlink("a/deep", "s") == 0);
	put("a/file", "x");
	must(open("s/../file", O_RDONLY) >= 0);
	expect("LINK", "s");
	expect("READ", "a/file");
	expect("! MISSED", "file");
	return 0;
}
