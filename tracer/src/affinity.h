/* One CPU for the tracer and the task it keeps stopping.
 *
 * Knows which task stopped last and which tasks are held on T's CPU. Decides by that alone, never by what a call is. */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct task;
struct tracer;

struct affinity {
	cpu_set_t all;	/* T's own at the start, and the guest's */
	bool off;	/* for the rest of the action */
	bool together;	/* T and the tasks that are `held` run on one CPU */
	bool used;	/* a task may have been born on that one CPU */
	cpu_set_t one;
	pid_t last;	/* who stopped last */
	unsigned row;	/* how often in a row, while not together */
	uint64_t row_since_ns, together_since_ns;
	unsigned patience; /* how long a row must be */
	unsigned stops;	   /* since the last tick */
	uint64_t tick_ns, tick_delay_ns;
};

void affinity_init(struct tracer *t);
/* The task has stopped, and will be resumed. */
void affinity_stop(struct tracer *t, struct task *task);
/* A task has made another one, and is at its stop for that; affinity_stop() follows. */
void affinity_made(struct tracer *t, const struct task *parent, pid_t child);
/* The task's very first stop. */
void affinity_born(struct tracer *t, struct task *task);
/* To be called whenever wait(2) returned; does nothing unless the timer has fired. */
void affinity_tick(struct tracer *t);
/* The guest is about to look at affinities: they are put back first. */
void affinity_hide(struct tracer *t);
/* The guest manages affinities itself, or may look at them at any time: hands off. */
void affinity_stop_using(struct tracer *t);
