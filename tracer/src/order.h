/* The order of facts of tasks that run at the same time.
 *
 * The tracer sees the end of a call some time after the kernel was done with it, and the ends of two calls in any order.
 * Told as they come, "A removed f" might stand before "B made f" where the kernel did it the other way round, and
 * whoever folds the events would take f for a file of the base. So:
 *
 * - One call that changes names is under way at a time; the others wait at their entry. Such a call blocks on nothing
 *   that another task does: an open of a FIFO, which may, is not made to count.
 * - A plain open is reported at its exit, with the file that it really got. If a change begins while it is under way,
 *   or it begins during one, it may have got what was there before: so it is walked and reported before the change,
 *   too.
 * - A call without an exit stop is reported at its entry, and the kernel may come to it only after a change that began
 *   since. What such a change leads it to is the action's own, or was observed by the change; but where a symlink or a
 *   folder came in its way, its name is walked and reported again at the end of the change (decode.c). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct task;
struct tracer;

struct order {
	struct task *exclusive; /* whose name-changing call is under way */
	unsigned changing;	/* calls under way that change anything */
	struct task **opening;	/* tasks in a plain open that was not walked */
	size_t opening_count, opening_capacity;
	pid_t *waiting; /* a ring would do; this is a queue that empties often */
	size_t waiting_first, waiting_count, waiting_capacity;
};

void order_free(struct order *order);

/* The task's call must wait until the one under way has ended; it is queued then. */
bool order_waits(struct tracer *t, struct task *task);
/* Before the entry is decoded: reports the plain opens that a change may overtake. */
void order_before(struct tracer *t, const struct task *task);
/* The call goes on to its exit stop. */
void order_begin(struct tracer *t, struct task *task);
/* It ended, whichever way. */
void order_end(struct tracer *t, struct task *task);
/* The next task that may go on after waiting; 0 when there is none, or none may yet. */
pid_t order_next(struct tracer *t);
