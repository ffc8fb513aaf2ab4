/* Signals that interrupt every call: none is lost, none is made up, no call fails by the tracer. */
#include "guest.h"

#include <signal.h>
#include <sys/time.h>

static volatile sig_atomic_t came;

static void count(int signal)
{
	(void)signal;
	came++;
}

int main(void)
{
	struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
	struct itimerval often = {{0, 300}, {0, 300}};

	put("file", "x");
	must(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
	for (int i = 0; i < 3000; i++) {
		int fd = open("file", O_RDONLY);
		must(fd >= 0 && close(fd) == 0);
	}
	must(came > 0);
	expect("READ", "file");
	return 0;
}
