/* See survivors.h. */
#include "survivors.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "decode.h"

static pid_t group_of(struct tracer *t, pid_t tid, char *name, size_t size)
{
	char path[32], text[512];

	snprintf(path, sizeof path, "%d/status", tid);
	cleanup_fd int fd = openat(t->proc_fd, path, O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (len <= 0)
		return 0;
	text[len] = '\0';
	const char *line = strstr(text, "\nTgid:");
	int group = 0;
	if (line == NULL || sscanf(line, "\nTgid: %d", &group) != 1 || sscanf(text, "Name: %16[^\n]", name) != 1)
		return 0;
	name[size - 1] = '\0';
	return group;
}

void note_survivors(struct tracer *t)
{
	struct tasks *tasks = &t->tasks;

	for (uint32_t at = 0; at <= tasks->mask; at++) {
		struct task *task = tasks->slots[at];
		if (task == NULL || task->tid <= 0)
			continue;
		task->tgid = group_of(t, task->tid, task->name, sizeof task->name);
		task->survivor = task->tgid == task->tid;
	}
}
