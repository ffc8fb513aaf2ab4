/* The working directory of a process is renamed by another one: relative names follow it. */
#include "guest.h"

int main(void)
{
	must(mkdir("a", 0755) == 0);
	put("a/file", "x");
	must(chdir("a") == 0);
	pid_t child = fork();
	if (child == 0)
		_exit(rename("../a", "../b") == 0 ? 0 : 1);
	finish_child(child);
	must(open("file", O_RDONLY) >= 0);
	expect_two("RENAME", "a", "b");
	expect("READ", "b/file");
	expect("! READ", "a/file");
	return 0;
}
