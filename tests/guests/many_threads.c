/* Five hundred threads that make and remove files of the same names. */
#include "guest.h"

#include <pthread.h>
#include <stdint.h>

enum { THREADS = 500, TURNS = 10 };

static void *work(void *number)
{
	char path[32];

	for (int i = 0; i < TURNS; i++) {
		snprintf(path, sizeof path, "file-%ld-%d", (long)(intptr_t)number % 40, i % 2);
		int fd = open(path, O_RDWR | O_CREAT, 0600);
		if (fd >= 0)
			close(fd);
		unlink(path);
	}
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	pthread_attr_t attributes;

	must(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, 128 * 1024) == 0);
	for (long i = 0; i < THREADS; i++)
		must(pthread_create(&threads[i], &attributes, work, (void *)(intptr_t)i) == 0);
	for (int i = 0; i < THREADS; i++)
		must(pthread_join(threads[i], NULL) == 0);
	expect("CREATE", "file-0-0");
	expect("REMOVE", "file-0-0");
	return 0;
}
