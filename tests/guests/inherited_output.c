/* Calls on descriptors that came from outside, or have no name, are no facts of the state. */
#include "guest.h"

#include <sys/mman.h>

int main(void)
{
	int pipe_ends[2], memory = memfd_create("memory", 0);

	must(fchmod(1, 0600) == 0 || errno == EPERM);
	must(pipe(pipe_ends) == 0 && fchmod(pipe_ends[0], 0600) == 0);
	must(ftruncate(memory, 10) == 0 && fchmod(memory, 0600) == 0);
	put("file", "0123456789");
	int fd = open("file", O_RDWR);
	must(lseek(fd, 4, SEEK_SET) == 4);
	pid_t child = fork();
	if (child == 0) {
		must(dup2(fd, 1) == 1 && write(1, "x", 1) == 1); /* at the offset that was inherited */
		_exit(0);
	}
	finish_child(child);
	char text[11] = "";
	must(pread(fd, text, 10, 0) == 10 && strcmp(text, "0123x56789") == 0);
	expect("WRITE", "file");
	expect("! META", "file");
	return 0;
}
