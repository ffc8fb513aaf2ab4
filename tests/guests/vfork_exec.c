/* vfork and exec: the held parent goes on. */
#include "guest.h"

int main(void)
{
	char program[PATH_MAX];

	must(realpath("/bin/true", program) != NULL);
	pid_t child = vfork();
	if (child == 0) {
		execl("/bin/true", "true", (char *)NULL);
		_exit(1);
	}
	finish_child(child);
	expect("EXEC", program);
	return 0;
}
