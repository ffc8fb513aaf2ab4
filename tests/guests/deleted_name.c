/* A deleted file has no name: what is done to it by its descriptor changes no path. */
#include "guest.h"

int main(void)
{
	put("gone", "x");
	int fd = open("gone", O_RDWR);
	must(fd >= 0 && unlink("gone") == 0);
	must(fchmod(fd, 0600) == 0);
	expect("REMOVE", "gone");
	expect("! META", "gone");
	return 0;
}
