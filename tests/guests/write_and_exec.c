/* A program that was just written can be run once nobody holds it open for writing. */
#include "guest.h"

int main(int argc, char **argv)
{
	char block[65536], *again[] = { "copy", "again", NULL };
	ssize_t got;

	if (argc > 1)
		return 0;
	int from = open(argv[0], O_RDONLY), to = open("copy", O_WRONLY | O_CREAT, 0755);
	must(from >= 0 && to >= 0);
	while ((got = read(from, block, sizeof block)) > 0)
		must(write(to, block, (size_t)got) == got);
	execv("copy", again);
	must(errno == ETXTBSY);
	must(close(to) == 0);
	pid_t child = fork();
	if (child == 0) {
		execv("copy", again);
		_exit(1);
	}
	finish_child(child);
	expect("CREATE", "copy");
	expect("READ", "copy");
	expect("EXEC", "copy");
	return 0;
}
