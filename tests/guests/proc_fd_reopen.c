/* /proc/self/fd/N and /dev/fd/N are the guest's own, and lead to the file itself. */
#include "guest.h"

int main(void)
{
	char path[64];

	put("file", "x");
	int fd = open("file", O_PATH);
	must(fd >= 0);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	must(open(path, O_RDONLY) >= 0);
	snprintf(path, sizeof path, "/dev/fd/%d", fd);
	struct stat st;
	must(stat(path, &st) == 0);
	expect("READ", "file");
	expect("STAT", "file");
	return 0;
}
