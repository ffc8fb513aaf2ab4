/* Opening an existing file for writing without O_TRUNC keeps what it held: it is read as well. */
#include "guest.h"

int main(void)
{
	put("log", "one\n");
	int fd = open("log", O_WRONLY | O_APPEND);
	must(fd >= 0);
	expect("PROBE", "log");
	expect("READ", "log");
	expect("WRITE", "log");
	return 0;
}
