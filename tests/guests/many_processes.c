/* Five thousand short-lived processes: every one is followed. */
#include "guest.h"

enum { PROCESSES = 5000, AT_ONCE = 50 };

int main(void)
{
	int running = 0;

	for (int i = 0; i < PROCESSES; i++) {
		pid_t child = fork();
		must(child >= 0);
		if (child == 0)
			_exit(access("absent", R_OK) == 0);
		if (++running == AT_ONCE) {
			int status;
			must(wait(&status) > 0 && status == 0);
			running--;
		}
	}
	while (running-- > 0) {
		int status;
		must(wait(&status) > 0 && status == 0);
	}
	expect("MISSED", "absent");
	return 0;
}
