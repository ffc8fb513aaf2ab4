/* mkdir: absence, then the folder; a second one fails because it is there. */
#include "guest.h"

int main(void)
{
	must(mkdir("d", 0755) == 0);
	must(mkdir("d", 0755) < 0 && errno == EEXIST);
	must(mkdir("no/d", 0755) < 0 && errno == ENOENT);
	expect("MISSED", "d");
	expect("MKDIR", "d");
	expect("PROBE", "d");
	expect("MISSED", "no");
	expect("! MKDIR", "no/d");
	return 0;
}
