/* A thread flips the path while it is being opened: what was really opened is reported. */
#include "guest.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

static char path[16] = "one";
static atomic_bool done;

static void *flip(void *unused)
{
	(void)unused;
	while (!done) {
		memcpy(path, "two", 4);
		atomic_signal_fence(memory_order_seq_cst); /* else the compiler drops the first */
		memcpy(path, "one", 4);
		atomic_signal_fence(memory_order_seq_cst);
	}
	return NULL;
}

int main(void)
{
	pthread_t thread;
	int opened[2] = {0, 0};
	struct stat one, st;

	put("one", "1");
	put("two", "2");
	must(stat("one", &one) == 0);
	must(pthread_create(&thread, NULL, flip, NULL) == 0);
	for (int i = 0; i < 200; i++) {
		int fd = open(path, O_RDONLY);
		if (fd < 0)
			continue; /* caught in the middle of a copy */
		must(fstat(fd, &st) == 0 && close(fd) == 0);
		opened[st.st_ino == one.st_ino ? 0 : 1] = 1;
	}
	done = true;
	pthread_join(thread, NULL);
	if (opened[0])
		expect("READ", "one");
	if (opened[1])
		expect("READ", "two");
	return 0;
}
