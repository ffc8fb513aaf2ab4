/* The at-calls resolve from a real descriptor, wherever the working directory is. */
#include "guest.h"

int main(void)
{
	must(mkdir("d", 0755) == 0);
	put("d/file", "x");
	int folder = open("d", O_RDONLY | O_DIRECTORY);
	must(folder >= 0 && chdir("/") == 0);
	must(openat(folder, "file", O_RDONLY) >= 0);
	must(openat(folder, "absent", O_RDONLY) < 0);
	must(unlinkat(folder, "file", 0) == 0);
	expect("READ", "d/file");
	expect("MISSED", "d/absent");
	expect("REMOVE", "d/file");
	return 0;
}
