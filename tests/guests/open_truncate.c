/* O_TRUNC is blind to the content, but not to the existence. */
#include "guest.h"

int main(void)
{
	put("file", "old");
	int fd = open("file", O_WRONLY | O_CREAT | O_TRUNC, 0644);
	must(fd >= 0);
	expect("PROBE", "file");
	expect("WRITE", "file");
	expect("! READ", "file");
	return 0;
}
