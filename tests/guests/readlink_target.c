/* readlink observes the link itself, and never what it leads to. */
#include "guest.h"

int main(void)
{
	char target[16];

	must(symlink("nowhere", "link") == 0);
	must(readlink("link", target, sizeof target) == 7);
	expect("LINK", "link");
	expect("! MISSED", "nowhere");
	return 0;
}
