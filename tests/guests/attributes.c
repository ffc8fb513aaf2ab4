/* Mode, owner and times, each by another call; what fails is not reported as done. */
#include "guest.h"

#include <sys/time.h>

int main(void)
{
	put("a", "");
	put("b", "");
	put("c", "");
	must(chmod("a", 0600) == 0);
	int fd = open("b", O_RDONLY);
	must(fd >= 0 && fchmod(fd, 0640) == 0);
	must(futimens(fd, NULL) == 0);
	must(utimensat(AT_FDCWD, "c", NULL, 0) == 0);
	must(chown("c", getuid(), getgid()) == 0);
	must(chmod("absent", 0600) < 0);
	expect("META", "a");
	expect("META", "b");
	expect("META", "c");
	expect("MISSED", "absent");
	expect("! META", "absent");
	return 0;
}
