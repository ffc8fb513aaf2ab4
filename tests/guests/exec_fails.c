/* A failed exec is reported with its errno, and the missing program is an input. */
#include "guest.h"

int main(void)
{
	char *argv[] = {(char *)"absent", NULL};

	must(execv("absent", argv) < 0 && errno == ENOENT);
	put("plain", "no program");
	must(execv("plain", argv) < 0 && errno == EACCES);
	expect("MISSED", "absent");
	expect("EXEC", "absent");
	expect("EXEC", "plain");
	return 0;
}
