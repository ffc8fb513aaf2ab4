/* A program in a memfd has no path; what loads it is read all the same. */
#include "guest.h"

#include <sys/mman.h>

int main(void)
{
	char buffer[65536];
	int from = open("/bin/true", O_RDONLY), to = memfd_create("program", 0);
	ssize_t got;

	must(from >= 0 && to >= 0);
	while ((got = read(from, buffer, sizeof buffer)) > 0)
		must(write(to, buffer, (size_t)got) == got);
	pid_t child = fork();
	if (child == 0) {
		char *argv[] = {(char *)"true", NULL}, *env[] = {NULL};
		syscall(SYS_execveat, to, "", argv, env, AT_EMPTY_PATH);
		_exit(1);
	}
	finish_child(child);
	must(realpath("/bin/true", buffer) != NULL);
	expect("READ", buffer);
	return 0;
}
