/* CLONE_FS: names that one thread looks up while another changes their common working folder, at every moment of it. */
#include "guest.h"

#include <pthread.h>

enum { ROUNDS = 301 };

static volatile int turn; /* how often the folder was changed */

static void *change(void *unused)
{
	for (int i = 1; i <= ROUNDS; i++) {
		must(chdir(i % 2 ? "../b" : "../a") == 0);
		__atomic_store_n(&turn, i, __ATOMIC_SEQ_CST);
	}
	return unused;
}

int main(void)
{
	struct stat st;
	char name[32];
	int seen[ROUNDS + 1] = {0};
	pthread_t thread;

	must(mkdir("a", 0755) == 0 && mkdir("b", 0755) == 0 && chdir("a") == 0);
	must(stat("warm", &st) < 0); /* the folder is known */
	must(pthread_create(&thread, NULL, change, NULL) == 0);
	for (int before = 0; before < ROUNDS;) {
		before = __atomic_load_n(&turn, __ATOMIC_SEQ_CST);
		snprintf(name, sizeof name, "n%d", before);
		must(stat(name, &st) < 0);
		if (__atomic_load_n(&turn, __ATOMIC_SEQ_CST) == before && before == ROUNDS)
			seen[before] = 1;
	}
	must(pthread_join(thread, NULL) == 0);
	for (int i = 0; i < 20; i++) {
		must(chdir(i % 2 ? "../a" : "../b") == 0);
		snprintf(name, sizeof name, "m%d", i);
		must(stat(name, &st) < 0);
		snprintf(name, sizeof name, "%s/m%d", i % 2 ? "a" : "b", i);
		expect("MISSED", name);
	}
	must(seen[ROUNDS]);
	snprintf(name, sizeof name, "b/n%d", ROUNDS);
	expect("MISSED", name);
	return 0;
}
