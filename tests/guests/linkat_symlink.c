/* linkat takes a symlink as it is, unless it is told to follow it; AT_EMPTY_PATH does not tell it. */
#include "guest.h"

int main(void)
{
	put("file", "x");
	must(symlink("file", "link") == 0);
	must(linkat(AT_FDCWD, "link", AT_FDCWD, "plain", 0) == 0);
	must(linkat(AT_FDCWD, "link", AT_FDCWD, "empty", AT_EMPTY_PATH) == 0);
	must(linkat(AT_FDCWD, "link", AT_FDCWD, "followed", AT_SYMLINK_FOLLOW) == 0);
	expect("STAT", "link");
	expect_two("HARDLINK", "link", "plain");
	expect_two("HARDLINK", "link", "empty");
	expect_two("HARDLINK", "file", "followed");
	return 0;
}
