/* A task is never told that the tracer holds it on one CPU, and may choose its CPUs itself. */
#include "guest.h"

#include <sched.h>

static void stop_often(void)
{
	struct stat st;

	for (int i = 0; i < 2000; i++)
		must(stat("/nosuch", &st) < 0);
}

static int allowed(void)
{
	cpu_set_t set;

	must(sched_getaffinity(0, sizeof set, &set) == 0);
	return CPU_COUNT(&set);
}

static void allowed_line(char *line, size_t size)
{
	FILE *status = fopen("/proc/self/status", "r");

	must(status != NULL);
	while (fgets(line, (int)size, status) != NULL && strncmp(line, "Cpus_allowed:", 13) != 0)
		;
	must(strncmp(line, "Cpus_allowed:", 13) == 0);
	fclose(status);
}

static int in_child(int (*look)(void))
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		stop_often();
		_exit(look());
	}
	must(waitpid(child, &status, 0) == child && WIFEXITED(status));
	return WEXITSTATUS(status);
}

int main(void)
{
	int at_first = allowed();
	char first[2048], later[2048];

	stop_often();
	must(allowed() == at_first);
	stop_often();
	must(in_child(allowed) == at_first);
	stop_often();
	allowed_line(first, sizeof first);
	stop_often();
	allowed_line(later, sizeof later);
	must(strcmp(first, later) == 0);

	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET((size_t)sched_getcpu(), &one);
	must(sched_setaffinity(0, sizeof one, &one) == 0);
	stop_often();
	must(allowed() == 1 && in_child(allowed) == 1);
	expect("MISSED", "/nosuch");
	return 0;
}
