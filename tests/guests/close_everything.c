/* Closing all descriptors, or marking all to be closed by an exec, is nothing to the tracer: what is opened later is seen. */
#include "guest.h"

#include <sys/ioctl.h>
#include <sys/resource.h>

int main(int argc, char **argv)
{
	char *again[] = { argv[0], "again", NULL };

	if (argc > 1) { /* 3 was marked by FIOCLEX, 4 by close_range */
		must(fcntl(3, F_GETFD) < 0 && fcntl(4, F_GETFD) < 0);
		int fd = open("second", O_RDONLY);
		must(fd == 3);
		expect("READ", "first");
		expect("READ", "second");
		return 0;
	}
	put("first", "1");
	put("second", "2");
	must(syscall(436, 3, ~0U, 0) == 0); /* close_range */
	for (int fd = 3; fd < 1024; fd++)
		close(fd);
	must(open("first", O_RDONLY) == 3 && open("first", O_RDONLY) == 4);
	must(ioctl(3, FIOCLEX) == 0);
	must(syscall(436, 4, ~0U, 4) == 0); /* CLOSE_RANGE_CLOEXEC */
	execv("/proc/self/exe", again);
	return GUEST_FAILED;
}
