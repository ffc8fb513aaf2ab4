/* exec from a thread that is not the leader: the process goes on under its id. */
#include "guest.h"

#include <pthread.h>

static void *become(void *unused)
{
	(void)unused;
	execl("/bin/true", "true", (char *)NULL);
	return NULL;
}

int main(void)
{
	pthread_t thread;
	char program[PATH_MAX];

	must(realpath("/bin/true", program) != NULL);
	expect("EXEC", program);
	expect("READ", program);
	fflush(stdout);
	must(pthread_create(&thread, NULL, become, NULL) == 0);
	pause();
	return GUEST_FAILED;
}
