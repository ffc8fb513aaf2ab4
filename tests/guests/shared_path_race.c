/* A path that another process may write over is reported as what was really opened. */
#include "guest.h"

#include <signal.h>
#include <sys/mman.h>

int main(void)
{
	char *path = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int opened[2] = { 0, 0 };

	must(path != MAP_FAILED);
	put("file0", "0");
	put("file1", "1");
	strcpy(path, "file0");
	pid_t child = fork();
	for (unsigned i = 0; child == 0; i++)
		((volatile char *)path)[4] = (char)('0' + i % 2);
	must(child > 0);
	for (int i = 0; i < 3000; i++) {
		char which;
		int fd = open(path, O_RDONLY);
		must(fd >= 0 && read(fd, &which, 1) == 1 && close(fd) == 0);
		opened[which - '0']++;
	}
	must(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	if (opened[0] > 0)
		expect("READ", "file0");
	if (opened[1] > 0)
		expect("READ", "file1");
	return 0;
}
