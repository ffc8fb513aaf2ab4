/* Every symlink passed is an input, and so is the file at the end. */
#include "guest.h"

int main(void)
{
	must(mkdir("v1", 0755) == 0 && symlink("v1", "cur") == 0 && symlink("cur/lib", "lib") == 0);
	put("v1/lib", "x");
	must(open("lib", O_RDONLY) >= 0);
	expect("LINK", "lib");
	expect("LINK", "cur");
	expect("READ", "v1/lib");
	expect("SYMLINK", "lib");
	expect("! READ", "lib");
	return 0;
}
