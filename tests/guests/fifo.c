/* A FIFO is made and probed; what goes through it is no content of a file. */
#include "guest.h"

int main(void)
{
	must(mkfifo("pipe", 0600) == 0);
	must(open("pipe", O_RDWR | O_NONBLOCK) >= 0);
	expect("MISSED", "pipe");
	expect("MKNOD", "pipe");
	expect("PROBE", "pipe");
	expect("! READ", "pipe");
	expect("! WRITE", "pipe");
	return 0;
}
