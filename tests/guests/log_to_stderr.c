/* A log file that is a symlink to a standard stream, as web servers in containers have it. */
#include "guest.h"

int main(void)
{
	must(symlink("/proc/self/fd/2", "error.log") == 0 && symlink("/dev/stderr", "other.log") == 0);
	int fd = open("error.log", O_WRONLY | O_APPEND | O_CREAT, 0644);
	must(fd >= 0 && write(fd, "logged\n", 7) == 7);
	fd = open("other.log", O_WRONLY | O_APPEND | O_CREAT, 0644);
	must(fd >= 0 && write(fd, "logged\n", 7) == 7);
	expect("LINK", "error.log");
	expect("LINK", "other.log");
	expect("! WRITE", "error.log");
	expect("! CREATE", "error.log");
	return 0;
}
