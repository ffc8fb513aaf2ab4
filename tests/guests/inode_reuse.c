/* An inode number that is used again belongs to another file: facts go by names. */
#include "guest.h"

int main(void)
{
	ino_t before = 0, again = 0;
	struct stat st;
	char name[32];

	for (int i = 0; i < 64; i++) {
		snprintf(name, sizeof name, "file%d", i);
		put(name, "x");
		int fd = open(name, O_RDONLY);
		must(fd >= 0 && fstat(fd, &st) == 0 && unlink(name) == 0);
		if (st.st_ino == before)
			again++;
		before = st.st_ino;
		must(fchmod(fd, 0600) == 0); /* it has no name now */
		must(close(fd) == 0);
		expect("CREATE", name);
		expect("REMOVE", name);
		expect("! META", name);
	}
	return 0;
}
