/* The trace loop: seizes the guest, turns its stops into events, ends when the whole tree is gone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

#include "counts.h"

struct launched; /* launch.h */
struct out;

struct trace_result {
	int error;          /* 0, or -errno: tracing failed and the action has no outcome */
	const char *where;  /* the operation that failed */
	bool finished;      /* the guest's main process ended and `status` is its wait status */
	int status;
	struct rusage usage; /* of the guest's main process and what it waited for */
	uint64_t notifications, diverted, seccomp_stops, exit_stops, other_stops;
	struct counts counts;
	bool init_ended;    /* init was reaped here; `init_status` is its wait status */
	int init_status;
};

/* Runs the launched guest to its end. Returns result->error. Writes no END: the caller adds entries first. */
int trace_run(const struct launched *launched, struct out *events, struct trace_result *result);
