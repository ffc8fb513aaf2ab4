/* See task.h. */
#include "task.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "decode.h"

enum { FIRST_SLOTS = 256 };

static struct task removed; /* a tombstone */

static uint32_t first_slot(const struct tasks *tasks, pid_t tid)
{
	return ((uint32_t)tid * 2654435761u) & tasks->mask;
}

int tasks_init(struct tasks *tasks)
{
	memset(tasks, 0, sizeof *tasks);
	tasks->slots = calloc(FIRST_SLOTS, sizeof(struct task *));
	tasks->mask = FIRST_SLOTS - 1;
	return tasks->slots == NULL ? -ENOMEM : 0;
}

void task_drop_pending(struct task *task)
{
	if (task->pending.exec != NULL)
		exec_call_free(task->pending.exec);
	task->pending = (struct pending){ 0 };
}

static void leave_memory(struct task *task)
{
	if (task->memory != NULL && --task->memory->users == 0)
		free(task->memory);
	task->memory = NULL;
}

void task_new_memory(struct task *task)
{
	leave_memory(task);
	task->memory = calloc(1, sizeof *task->memory);
	if (task->memory == NULL)
		abort();
	task->memory->users = 1;
}

void task_share_memory(struct task *task, const struct task *with)
{
	if (with->memory == NULL || with->memory == task->memory)
		return;
	leave_memory(task);
	task->memory = with->memory;
	task->memory->users++;
}

static void task_free(struct task *task)
{
	leave_memory(task);
	task_drop_pending(task);
	free(task);
}

void tasks_free(struct tasks *tasks)
{
	for (uint32_t at = 0; tasks->slots != NULL && at <= tasks->mask; at++)
		if (tasks->slots[at] != NULL && tasks->slots[at] != &removed)
			task_free(tasks->slots[at]);
	free(tasks->slots);
	memset(tasks, 0, sizeof *tasks);
}

static struct task **slot_of(const struct tasks *tasks, pid_t tid)
{
	uint32_t at = first_slot(tasks, tid);

	for (; tasks->slots[at] != NULL; at = (at + 1) & tasks->mask)
		if (tasks->slots[at] != &removed && tasks->slots[at]->tid == tid)
			return &tasks->slots[at];
	return NULL;
}

struct task *tasks_find(const struct tasks *tasks, pid_t tid)
{
	struct task **slot = slot_of(tasks, tid);
	return slot == NULL ? NULL : *slot;
}

static void insert(struct tasks *tasks, struct task *task)
{
	uint32_t at = first_slot(tasks, task->tid);

	while (tasks->slots[at] != NULL && tasks->slots[at] != &removed)
		at = (at + 1) & tasks->mask;
	if (tasks->slots[at] == NULL)
		tasks->used++;
	tasks->slots[at] = task;
	tasks->count++;
}

static void grow(struct tasks *tasks)
{
	struct tasks old = *tasks;

	while (tasks->count * 2 > tasks->mask / 2)
		tasks->mask = tasks->mask * 2 + 1;
	tasks->slots = calloc((size_t)tasks->mask + 1, sizeof(struct task *));
	if (tasks->slots == NULL)
		abort();
	tasks->used = tasks->count = 0;
	for (uint32_t at = 0; at <= old.mask; at++)
		if (old.slots[at] != NULL && old.slots[at] != &removed)
			insert(tasks, old.slots[at]);
	free(old.slots);
}

struct task *tasks_get(struct tasks *tasks, pid_t tid)
{
	struct task *task = tasks_find(tasks, tid);

	if (task != NULL)
		return task;
	if ((tasks->used + 1) * 4 > tasks->mask * 3)
		grow(tasks);
	task = calloc(1, sizeof *task);
	if (task == NULL)
		abort();
	task->tid = tid;
	insert(tasks, task);
	return task;
}

static struct task *take(struct tasks *tasks, pid_t tid)
{
	struct task **slot = slot_of(tasks, tid);

	if (slot == NULL)
		return NULL;
	struct task *task = *slot;
	*slot = &removed;
	tasks->count--;
	return task;
}

void tasks_remove(struct tasks *tasks, pid_t tid)
{
	struct task *task = take(tasks, tid);
	if (task != NULL)
		task_free(task);
}

struct task *tasks_rename(struct tasks *tasks, pid_t from, pid_t to)
{
	struct task *task = take(tasks, from);

	tasks_remove(tasks, to);
	if (task == NULL)
		return tasks_get(tasks, to);
	task->tid = to;
	task->ns_tid = task->ns_tgid = 0;
	insert(tasks, task);
	return task;
}
