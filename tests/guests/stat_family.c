/* stat follows a symlink, lstat does not; fstat knows its file. */
#include "guest.h"

int main(void)
{
	struct stat st;

	put("file", "x");
	must(symlink("file", "link") == 0);
	must(stat("link", &st) == 0 && lstat("link", &st) == 0);
	int fd = open("/etc/passwd", O_RDONLY);
	must(fd >= 0 && syscall(SYS_fstat, fd, &st) == 0);
	expect("STAT", "file");
	expect("STAT", "link");
	expect("LINK", "link");
	expect("STAT", "/etc/passwd");
	return 0;
}
