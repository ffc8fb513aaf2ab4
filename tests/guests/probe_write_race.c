/* A thread flips a path between two names while files of that name are made and removed. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

static char path[16] = "one";
static atomic_bool done;

static void *flip(void *unused)
{
	while (!done) {
		memcpy(path, "two", 4);
		atomic_signal_fence(memory_order_seq_cst); /* else the compiler drops the first */
		memcpy(path, "one", 4);
		atomic_signal_fence(memory_order_seq_cst);
	}
	return unused;
}

int main(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, flip, NULL) != 0)
		return 1;
	for (int round = 0; round < 300; round++) {
		int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
		if (fd >= 0)
			close(fd);
		if (round % 3 == 0)
			unlink(path);
	}
	done = true;
	return pthread_join(thread, NULL);
}
