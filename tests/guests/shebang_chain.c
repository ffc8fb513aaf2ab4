/* A script reads itself, the interpreter it names, and the interpreter of that. */
#include "guest.h"

int main(void)
{
	char line[PATH_MAX + 16], shell[PATH_MAX];

	must(realpath("/bin/sh", shell) != NULL);
	put("inner", "#!/bin/sh\nexit 0\n");
	snprintf(line, sizeof line, "#!%s/inner one\n", here);
	put("outer", line);
	must(chmod("inner", 0755) == 0 && chmod("outer", 0755) == 0);
	pid_t child = fork();
	if (child == 0) {
		execl("./outer", "outer", (char *)NULL);
		_exit(1);
	}
	finish_child(child);
	expect("READ", "outer");
	expect("READ", "inner");
	expect("READ", shell);
	expect("EXEC", "outer");
	expect("META", "outer");
	return 0;
}
