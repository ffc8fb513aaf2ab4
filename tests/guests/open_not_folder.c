/* A file where a folder is needed is what makes the lookup fail. */
#include "guest.h"

int main(void)
{
	put("file", "");
	must(open("file/below", O_RDONLY) < 0 && errno == ENOTDIR);
	must(open("file/", O_RDONLY) < 0 && errno == ENOTDIR);
	expect("PROBE", "file");
	expect("! MISSED", "file/below");
	return 0;
}
