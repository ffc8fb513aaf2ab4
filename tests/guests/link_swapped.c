/* A symlink that another process keeps swapping: what was read through it is told, whichever way each open went. */
#include "guest.h"

#include <signal.h>

enum { TARGETS = 300 };

static void swap_all(void)
{
	char name[32];

	for (int i = 0; i < TARGETS; i++) {
		snprintf(name, sizeof name, "target%d", i);
		must(symlink(name, "new") == 0 && rename("new", "link") == 0);
	}
	_exit(0);
}

int main(void)
{
	static char was_read[TARGETS];
	char name[32], text[16] = "";

	for (int i = 0; i < TARGETS; i++) {
		snprintf(name, sizeof name, "target%d", i);
		snprintf(text, sizeof text, "%d", i);
		put(name, text);
	}
	must(symlink("target0", "link") == 0);
	pid_t child = fork();
	if (child == 0)
		swap_all();
	int status;
	while (waitpid(child, &status, WNOHANG) == 0) {
		memset(text, 0, sizeof text);
		int fd = open("link", O_RDONLY);
		must(fd >= 0 && read(fd, text, sizeof text - 1) > 0 && close(fd) == 0);
		was_read[atoi(text)] = 1;
	}
	must(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	for (int i = 0; i < TARGETS; i++) {
		snprintf(name, sizeof name, "target%d", i);
		if (was_read[i])
			expect("READ", name);
	}
	return 0;
}
