/* Processes killed in the middle of any call: the tracer goes on, and what they did is known. */
#include "guest.h"

#include <signal.h>

static void work(void)
{
	for (;;) {
		int fd = open("file", O_RDWR | O_CREAT, 0600);
		if (fd >= 0)
			close(fd);
		mkdir("folder", 0700);
		rename("folder", "other");
		rmdir("other");
		unlink("file");
		if (vfork() == 0) {
			execl("/bin/true", "true", (char *)NULL);
			_exit(1);
		}
	}
}

int main(void)
{
	for (int i = 0; i < 150; i++) {
		pid_t child = fork();
		must(child >= 0);
		if (child == 0)
			work();
		usleep((useconds_t)(i * 37 % 3000));
		must(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	}
	while (wait(NULL) > 0)
		;
	expect("CREATE", "file");
	return 0;
}
