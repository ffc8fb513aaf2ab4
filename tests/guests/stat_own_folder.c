/* A look at one's own folder is one at all of it, unless it is compared under two names, as shells do. */
#include "guest.h"

int main(void)
{
	struct stat st;

	must(mkdir("compared", 0755) == 0 && mkdir("seen", 0755) == 0 && mkdir("named", 0755) == 0);
	must(chdir("compared") == 0 && stat(".", &st) == 0);
	char name[PATH_MAX];
	must(getcwd(name, sizeof name) != NULL && stat(name, &st) == 0);
	must(chdir("../named") == 0 && getcwd(name, sizeof name) != NULL && stat(name, &st) == 0);
	must(chdir("../seen") == 0 && stat(".", &st) == 0);
	expect("OWN_STAT", "compared");
	expect("! STAT", "compared");
	expect("STAT", "named");
	expect("! OWN_STAT", "named");
	expect("STAT", "seen");
	expect("! OWN_STAT", "seen");
	return 0;
}
