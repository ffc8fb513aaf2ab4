/* A hard link: both names, and the content is an input. */
#include "guest.h"

int main(void)
{
	put("file", "x");
	must(link("file", "name") == 0);
	must(link("file", "name") < 0 && errno == EEXIST);
	expect("READ", "file");
	expect("MISSED", "name");
	expect("PROBE", "name");
	expect_two("HARDLINK", "file", "name");
	return 0;
}
