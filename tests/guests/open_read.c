/* Opening a file for reading reads it; nothing else happens to it. */
#include "guest.h"

int main(void)
{
	int fd = open("/etc/passwd", O_RDONLY);

	must(fd >= 0);
	expect("READ", "/etc/passwd");
	expect("! WRITE", "/etc/passwd");
	return 0;
}
