/* See order.h. */
#include "order.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "decode.h"

static bool opens(const struct task *task)
{
	enum decoder decoder = task->pending.row->decoder;
	return decoder == DECODE_OPEN || decoder == DECODE_OPENAT2;
}

static bool changes_names(const struct task *task)
{
	switch ((int)task->pending.row->decoder) {
	case DECODE_OPEN:
	case DECODE_OPENAT2:
		return (task->pending.flags & (O_CREAT | O_PATH)) == O_CREAT;
	case DECODE_MAKE:
	case DECODE_REMOVE:
	case DECODE_RENAME:
	case DECODE_LINK:
	case DECODE_BIND:
		return true;
	default:
		return false;
	}
}

static bool changes_anything(const struct task *task)
{
	switch ((int)task->pending.row->decoder) {
	case DECODE_OPEN:
	case DECODE_OPENAT2:
		return open_may_change(&task->pending);
	case DECODE_TRUNCATE:
	case DECODE_ATTR:
	case DECODE_ATTR_FD:
		return true;
	default:
		return changes_names(task);
	}
}

void order_free(struct order *order)
{
	free(order->opening);
	free(order->waiting);
	memset(order, 0, sizeof *order);
}

static void *grow(void *array, size_t *capacity, size_t size)
{
	*capacity = *capacity ? *capacity * 2 : 64;
	array = realloc(array, *capacity * size);
	if (array == NULL)
		abort();
	return array;
}

bool order_waits(struct tracer *t, struct task *task)
{
	struct order *order = &t->order;

	if (order->exclusive == NULL || !changes_names(task))
		return false;
	if (order->waiting_first + order->waiting_count == order->waiting_capacity) {
		if (order->waiting_count > 0)
			memmove(order->waiting, order->waiting + order->waiting_first, order->waiting_count * sizeof(pid_t));
		order->waiting_first = 0;
		if (order->waiting_count * 2 >= order->waiting_capacity)
			order->waiting = grow(order->waiting, &order->waiting_capacity, sizeof(pid_t));
	}
	order->waiting[order->waiting_first + order->waiting_count++] = task->tid;
	task->waits = true;
	return true;
}

pid_t order_next(struct tracer *t)
{
	struct order *order = &t->order;

	while (order->exclusive == NULL && order->waiting_count > 0) {
		struct task *task = tasks_find(&t->tasks, order->waiting[order->waiting_first++]);
		if (--order->waiting_count == 0)
			order->waiting_first = 0;
		/* It may have died meanwhile, and another task may have its id. */
		if (task != NULL && task->waits) {
			task->waits = false;
			return task->tid;
		}
	}
	return 0;
}

void order_before(struct tracer *t, const struct task *task)
{
	struct order *order = &t->order;

	if ((order->opening_count == 0 && t->put_off == 0) || !changes_anything(task))
		return;
	decode_settle(t, NULL);
	for (size_t i = 0; i < order->opening_count; i++) {
		order->opening[i]->pending.opening = false;
		open_report_early(t, order->opening[i]);
	}
	order->opening_count = 0;
}

void order_begin(struct tracer *t, struct task *task)
{
	struct order *order = &t->order;
	struct pending *call = &task->pending;

	if (opens(task) && !call->walked) {
		call->opening = true;
		if (order->opening_count == order->opening_capacity)
			order->opening = grow(order->opening, &order->opening_capacity, sizeof(struct task *));
		order->opening[order->opening_count++] = task;
	}
	if (!changes_anything(task))
		return;
	call->changes = true;
	order->changing++;
	bool may_block = opens(task) && call->first.what == FOUND_OBJECT && call->first.type != S_IFREG;
	if (changes_names(task) && !may_block)
		order->exclusive = task;
}

void order_end(struct tracer *t, struct task *task)
{
	struct order *order = &t->order;

	if (order->exclusive == task) {
		order->exclusive = NULL;
		t->late_count = 0;
	}
	if (task->pending.changes)
		order->changing--;
	for (size_t i = 0; task->pending.opening && i < order->opening_count; i++)
		if (order->opening[i] == task) {
			order->opening[i] = order->opening[--order->opening_count];
			break;
		}
	task->waits = false;
	task_drop_pending(task);
}
