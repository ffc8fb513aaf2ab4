/* Waking a task on another CPU is what a stop costs most: an idle CPU must be interrupted and, in a virtual machine,
 * entered again; twice per stop. When T and the task that it keeps stopping run on one CPU, a stop is two switches on
 * that CPU. The kernel does not do so by itself, since it likes to wake a task on an idle CPU (for a notification it
 * does, notify.h; but whatever notifies stops as well, and pays for each stop what it saved).
 *
 * So a task that stops several times in a row, in a short time, is held on T's present CPU together with T. Its
 * children are born there. What must not suffer for it is a tree that is parallel:
 *
 * - When another task stops while the one before it could run, or waits for T as well, all are let go at once.
 * - Nor do notifications bring T and a task to one CPU from then on: two tasks that wait for T at the same time would
 *   both be woken there, and the other CPU stand idle. They do again when T and a task come together.
 * - A timer runs while they are together. Few stops between two ticks mean that somebody computes: let go. So do two
 *   ticks between which T waited for its CPU half of the time: somebody else wants it, too.
 * - Each time that happens soon after they came together, the row of stops that is asked for next doubles.
 *
 * The guest never finds out: before it looks at an affinity (sched_getaffinity(2), /proc/PID/status) all of them are
 * put back, and when it sets one the tracer leaves them alone for the rest of the action. */
#include "affinity.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"
#include "decode.h"
#include "notify.h"

enum {
	LEAST_ROW = 4,
	LONGEST_ROW = 1024,
	QUICK_NS = 400 * 1000,	      /* between two stops of a row, on average */
	TICK_US = 4000,
	FEW_STOPS = 12,		      /* between two ticks */
	SOON_NS = 8 * 1000 * 1000,
};

static volatile sig_atomic_t ticked;

static void on_alarm(int signal)
{
	(void)signal;
	ticked = 1;
}

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void set_timer(long microseconds)
{
	const struct itimerval timer = {
		.it_interval = { .tv_usec = microseconds },
		.it_value = { .tv_usec = microseconds },
	};

	setitimer(ITIMER_REAL, &timer, NULL);
}

void affinity_init(struct tracer *t)
{
	struct affinity *a = &t->affinity;
	struct sigaction action = { .sa_handler = on_alarm }; /* no SA_RESTART: wait(2) is to return */

	a->patience = LEAST_ROW;
	a->off = sched_getaffinity(0, sizeof a->all, &a->all) < 0 || CPU_COUNT(&a->all) < 2 ||
		 sigaction(SIGALRM, &action, NULL) < 0;
}

/* How long T has waited for a CPU; 0 where the kernel does not count it. */
static uint64_t waited_ns(const struct tracer *t)
{
	char text[96];
	cleanup_fd int fd = openat(t->proc_fd, "self/schedstat", O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

	if (len <= 0)
		return 0;
	text[len] = '\0';
	const char *second = strchr(text, ' ');
	return second == NULL ? 0 : strtoull(second + 1, NULL, 10);
}

/* Whether the task could go on if it had a CPU; one at a stop that is not handled yet counts as well. */
static bool could_run(const struct tracer *t, pid_t tid)
{
	char name[32], text[128];

	snprintf(name, sizeof name, "%d/stat", tid);
	cleanup_fd int fd = openat(t->proc_fd, name, O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (len <= 0)
		return false;
	text[len] = '\0';
	const char *state = strrchr(text, ')'); /* the name before it may hold anything, proc_pid_stat(5) */
	return state != NULL && state[1] == ' ' && (state[2] == 'R' || state[2] == 't');
}

static void let_go(struct tracer *t)
{
	struct affinity *a = &t->affinity;

	for (uint32_t at = 0; at <= t->tasks.mask; at++) {
		struct task *task = t->tasks.slots[at];
		if (task == NULL || !task->held)
			continue;
		task->held = false;
		task->let_go = true;
		sched_setaffinity(task->tid, sizeof a->all, &a->all); /* ESRCH: it is gone */
	}
	sched_setaffinity(0, sizeof a->all, &a->all);
	a->together = false;
	a->row = 0;
	set_timer(0);
}

/* Together was not good, or no longer. */
static void part(struct tracer *t)
{
	struct affinity *a = &t->affinity;

	if (now_ns() - a->together_since_ns > SOON_NS)
		a->patience = LEAST_ROW;
	else if (a->patience < LONGEST_ROW)
		a->patience *= 2;
	notify_in_place(t->notified, false);
	let_go(t);
}

static bool hold(struct tracer *t, struct task *task)
{
	struct affinity *a = &t->affinity;

	if (sched_setaffinity(task->tid, sizeof a->one, &a->one) < 0) {
		if (errno != ESRCH) /* not allowed here: CAP_SYS_NICE, a cpuset */
			affinity_stop_using(t);
		return false;
	}
	return task->held = true;
}

static void come_together(struct tracer *t, struct task *task)
{
	struct affinity *a = &t->affinity;
	int cpu = sched_getcpu();

	if (cpu < 0)
		return;
	CPU_ZERO(&a->one);
	CPU_SET(cpu, &a->one);
	a->used = true;
	if (sched_setaffinity(0, sizeof a->one, &a->one) < 0) {
		a->off = true;
		return;
	}
	a->together = true;
	notify_in_place(t->notified, true);
	if (!hold(t, task))
		return;
	a->together_since_ns = a->tick_ns = now_ns();
	a->tick_delay_ns = waited_ns(t);
	a->stops = 0;
	set_timer(TICK_US);
}

static void in_a_row(struct tracer *t, struct task *task)
{
	struct affinity *a = &t->affinity;

	if (a->row++ == 0)
		a->row_since_ns = now_ns();
	if (a->row < a->patience)
		return;
	if (now_ns() - a->row_since_ns < (uint64_t)a->row * QUICK_NS)
		come_together(t, task);
	else
		a->row = 0;
}

/* Whether a task of the tree could go on beside the one that has just stopped. */
static bool is_parallel(const struct tracer *t, pid_t before, const struct task *task)
{
	return before != task->tid && tasks_find(&t->tasks, before) != NULL &&
	       (could_run(t, before) || notify_pending(t->notified));
}

void affinity_stop(struct tracer *t, struct task *task)
{
	struct affinity *a = &t->affinity;
	pid_t before = a->last;

	task->let_go = false;
	if (a->off)
		return;
	a->stops++;
	a->last = task->tid;
	if (!a->together) {
		if (t->notified != NULL && t->notified->in_place && is_parallel(t, before, task))
			notify_in_place(t->notified, false);
		if (before != task->tid)
			a->row = 0;
		in_a_row(t, task);
		return;
	}
	if (is_parallel(t, before, task))
		part(t);
	else if (!task->held)
		hold(t, task);
}

void affinity_born(struct tracer *t, struct task *task)
{
	struct affinity *a = &t->affinity;

	if (a->together)
		task->held = true; /* its parent may have been: then it must be let go, too */
	else if (a->used && !a->off)
		sched_setaffinity(task->tid, sizeof a->all, &a->all);
}

void affinity_made(struct tracer *t, const struct task *parent, pid_t child)
{
	struct affinity *a = &t->affinity;

	/* It was let go while it was in fork(2), perhaps after the child had got its affinity. */
	if (parent->let_go)
		sched_setaffinity(child, sizeof a->all, &a->all);
}

void affinity_tick(struct tracer *t)
{
	struct affinity *a = &t->affinity;

	if (!ticked)
		return;
	ticked = 0;
	if (!a->together)
		return;
	uint64_t now = now_ns(), waited = waited_ns(t);
	if (a->stops < FEW_STOPS)
		let_go(t);
	else if ((waited - a->tick_delay_ns) * 2 > now - a->tick_ns)
		part(t);
	a->stops = 0;
	a->tick_ns = now;
	a->tick_delay_ns = waited;
}

void affinity_hide(struct tracer *t)
{
	if (t->affinity.together)
		let_go(t);
	t->affinity.row = 0; /* nor may this very stop be the one that brings them together */
}

void affinity_stop_using(struct tracer *t)
{
	affinity_hide(t);
	t->affinity.off = true;
}

enum after affinity_get_enter(struct tracer *t, struct task *task)
{
	(void)task;
	affinity_hide(t);
	return AFTER_CONTINUE;
}

enum after affinity_set_enter(struct tracer *t, struct task *task)
{
	(void)task;
	affinity_stop_using(t);
	return AFTER_CONTINUE;
}
