/* A folder that a path only passes on its way up must be there, too. */
#include "guest.h"

int main(void)
{
	must(mkdir("d", 0755) == 0 && mkdir("d/passed", 0755) == 0);
	put("d/file", "x");
	must(open("d/passed/../file", O_RDONLY) >= 0);
	must(access("d/absent/../file", R_OK) < 0 && errno == ENOENT);
	expect("PROBE", "d/passed");
	expect("READ", "d/file");
	expect("MISSED", "d/absent");
	return 0;
}
