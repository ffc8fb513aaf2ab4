/* Signals whose handlers were set without SA_RESTART: no lookup and no plain open fails by them, as none does untraced;
 * a FIFO that nobody writes to is given up, as ever. */
#include "guest.h"

#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

static volatile sig_atomic_t came, done;
static pthread_t busy;

static void count(int signal)
{
	(void)signal;
	came++;
}

static void *disturb(void *other)
{
	while (!done) {
		pthread_kill(*(pthread_t *)other, SIGUSR1);
		usleep(50);
	}
	return NULL;
}

static void look(void)
{
	struct stat st;
	char target[16];

	for (int i = 0; i < 1500; i++) {
		must(stat("file", &st) == 0);
		must(stat("absent", &st) < 0 && errno == ENOENT);
		must(access("file", R_OK) == 0);
		must(readlink("link", target, sizeof target) == 4);
		int fd = open("file", O_RDONLY);
		must(fd >= 0 && fstat(fd, &st) == 0 && close(fd) == 0);
		DIR *folder = opendir("folder");
		must(folder != NULL && readdir(folder) != NULL && closedir(folder) == 0);
	}
}

static void give_up(void)
{
	const struct itimerval soon = {{0, 0}, {0, 40000}};
	const int flags[] = {O_RDONLY, O_WRONLY, O_RDONLY | O_NOATIME, O_WRONLY | O_CREAT};

	for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
		must(setitimer(ITIMER_REAL, &soon, NULL) == 0);
		must(open("pipe", flags[i], 0600) < 0 && errno == EINTR);
	}
}

static void *idle(void *unused)
{
	sigset_t alarm;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &alarm, NULL);
	pause();
	return unused;
}

int main(void)
{
	struct sigaction action = {.sa_handler = count};
	pthread_t self = pthread_self();

	put("file", "x");
	must(symlink("file", "link") == 0 && mkdir("folder", 0755) == 0 && mkfifo("pipe", 0600) == 0);
	must(sigaction(SIGUSR1, &action, NULL) == 0 && sigaction(SIGALRM, &action, NULL) == 0);
	must(pthread_create(&busy, NULL, disturb, &self) == 0);
	look();
	done = 1;
	must(pthread_join(busy, NULL) == 0 && came > 0);
	for (int i = 0; i < 3; i++)
		give_up();
	must(pthread_create(&busy, NULL, idle, NULL) == 0); /* now an open is told when it is done */
	for (int i = 0; i < 3; i++)
		give_up();
	expect("READ", "file");
	expect("STAT", "file");
	expect("MISSED", "absent");
	expect("LINK", "link");
	expect("LIST", "folder");
	expect("PROBE", "pipe");
	expect("! READ", "pipe");
	return 0;
}
