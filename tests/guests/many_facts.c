/* More facts than a pipe holds. */
#include "guest.h"

enum { COUNT = 20000 };

int main(void)
{
	char name[64];

	for (int i = 0; i < COUNT; i++) {
		snprintf(name, sizeof name, "an-absent-file-of-some-length-%d", i);
		must(access(name, F_OK) < 0);
	}
	for (int i = 0; i < COUNT; i += COUNT / 10) {
		snprintf(name, sizeof name, "an-absent-file-of-some-length-%d", i);
		expect("MISSED", name);
	}
	return 0;
}
