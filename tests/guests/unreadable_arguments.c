/* Arguments that the kernel can't read are no hole in the trace. */
#include "guest.h"

#include <sys/mman.h>
#include <sys/socket.h>

int main(void)
{
	char *closed = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct stat st;

	must(closed != MAP_FAILED && munmap(closed, 4096) == 0);
	must(stat(closed, &st) < 0 && errno == EFAULT);
	must(open(closed, O_RDONLY) < 0 && errno == EFAULT);
	must(open(closed, O_WRONLY | O_CREAT, 0644) < 0 && errno == EFAULT);
	must(syscall(SYS_openat2, AT_FDCWD, "x", closed, 24) < 0 && errno == EFAULT);
	must(mkdir(closed, 0755) < 0 && errno == EFAULT);
	must(rename("x", closed) < 0 && (errno == EFAULT || errno == ENOENT));
	must(chmod(closed, 0644) < 0 && errno == EFAULT);
	must(connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)closed, 16) < 0 && errno == EFAULT);
	must(sendmsg(socket(AF_UNIX, SOCK_DGRAM, 0), (struct msghdr *)closed, 0) < 0 && errno == EFAULT);
	expect("! INCOMPLETE", "/");
	return 0;
}
