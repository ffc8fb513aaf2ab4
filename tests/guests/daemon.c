/* A program that makes itself a daemon by a double fork is killed with the action, and told. */
#include "guest.h"

#include <sys/prctl.h>

int main(void)
{
	int ready[2];
	char byte;

	must(pipe(ready) == 0);
	pid_t child = fork();
	if (child == 0) {
		must(setsid() > 0);
		if (fork() == 0) {
			must(prctl(PR_SET_NAME, "in-background") == 0 && chdir("/") == 0);
			must(write(ready[1], "x", 1) == 1);
			for (;;)
				pause();
		}
		_exit(0);
	}
	finish_child(child);
	must(read(ready[0], &byte, 1) == 1);
	puts("KILLED in-background");
	return 0;
}
