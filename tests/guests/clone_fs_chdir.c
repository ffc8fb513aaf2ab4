/* CLONE_FS: a thread that changes the working directory changes it for the other. */
#include "guest.h"

#include <pthread.h>

static void *change(void *unused)
{
	(void)unused;
	must(chdir("d") == 0);
	return NULL;
}

int main(void)
{
	pthread_t thread;

	must(mkdir("d", 0755) == 0);
	put("d/file", "x");
	must(pthread_create(&thread, NULL, change, NULL) == 0 && pthread_join(thread, NULL) == 0);
	must(open("file", O_RDONLY) >= 0);
	expect("READ", "d/file");
	expect("! MISSED", "file");
	return 0;
}
