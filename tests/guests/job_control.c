/* SIGSTOP stops and SIGCONT continues, and the parent is told, as without a tracer. */
#include "guest.h"

#include <signal.h>

int main(void)
{
	int status;
	pid_t child = fork();

	must(child >= 0);
	if (child == 0)
		for (;;)
			access("absent", R_OK);
	for (int i = 0; i < 50; i++) {
		must(kill(child, SIGSTOP) == 0 && waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
		must(kill(child, SIGCONT) == 0 && waitpid(child, &status, WCONTINUED) == child && WIFCONTINUED(status));
	}
	must(kill(child, SIGSTOP) == 0 && waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
	must(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGKILL);
	return 0;
}
