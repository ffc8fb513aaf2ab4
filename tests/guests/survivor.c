/* A background process is killed with the action, and named. */
#include "guest.h"

#include <signal.h>

int main(void)
{
	pid_t child = fork();

	must(child >= 0);
	if (child == 0) {
		setsid();
		signal(SIGTERM, SIG_IGN);
		for (;;)
			pause();
	}
	puts("KILLED survivor");
	return 0;
}
