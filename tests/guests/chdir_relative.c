/* A relative name is resolved from the working directory of that moment. */
#include "guest.h"

int main(void)
{
	must(mkdir("d", 0755) == 0);
	put("d/file", "x");
	must(chdir("d") == 0 && open("file", O_RDONLY) >= 0);
	int up = open("..", O_RDONLY | O_DIRECTORY);
	must(up >= 0 && fchdir(up) == 0 && open("file", O_RDONLY) < 0);
	expect("PROBE", "d");
	expect("READ", "d/file");
	expect("PROBE", "");
	expect("MISSED", "file");
	return 0;
}
