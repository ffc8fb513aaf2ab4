/* Ways through /proc lead to the names that they stand for: one's own, another process's, a thread's. */
#include "guest.h"

#include <signal.h>

static void reads(const char *format, long number, const char *name)
{
	char path[PATH_MAX + 64];

	snprintf(path, sizeof path, format, number, name);
	int fd = open(path, O_RDONLY);
	must(fd >= 0 && close(fd) == 0);
}

int main(void)
{
	char name[PATH_MAX * 2];
	struct stat st;
	int hold[2];

	must(mkdir("folder", 0755) == 0 && symlink("folder", "link") == 0 && pipe(hold) == 0);
	for (char letter = 'a'; letter <= 'h'; letter++) {
		snprintf(name, sizeof name, "folder/%c", letter);
		put(name, "x");
	}
	int fd = open("folder", O_PATH);
	must(fd >= 0);
	reads("/proc/self/fd/%ld/%s", fd, "a");
	reads("/proc/thread-self/fd/%ld/%s", fd, "b");
	reads("/dev/fd/%ld/%s", fd, "c");
	reads("/proc/%ld/cwd/link/%s", getpid(), "d");
	snprintf(name, sizeof name, "/proc/self/root%s/folder/e", here);
	must(stat(name, &st) == 0);
	pid_t child = fork();
	if (child == 0) { /* stands in the folder, and waits */
		must(chdir("folder") == 0 && close(hold[1]) == 0 && dup2(fd, 77) == 77);
		must(kill(getpid(), SIGSTOP) == 0 && read(hold[0], name, 1) == 0);
		_exit(0);
	}
	int status;
	must(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
	reads("/proc/%ld/cwd/%s", child, "f");
	reads("/proc/%ld/fd/77/%s", child, "g");
	must(close(hold[1]) == 0 && kill(child, SIGCONT) == 0);
	finish_child(child);
	snprintf(name, sizeof name, "/proc/self/fd/%d/../folder/h", fd);
	must(access(name, F_OK) == 0);
	for (char letter = 'a'; letter <= 'h'; letter++) {
		snprintf(name, sizeof name, "folder/%c", letter);
		expect(letter == 'e' ? "STAT" : letter == 'h' ? "PROBE" : "READ", name);
	}
	expect("LINK", "link");
	return 0;
}
