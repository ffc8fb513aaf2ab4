/* Counters, for whoever measures: always kept, since one costs nothing beside a stop, and told when they are asked for. */
#pragma once

#include <stdint.h>
#include <sys/resource.h>

struct trace_result;

enum { COUNTED_CALLS = 512 };

struct counts {
	uint64_t calls[COUNTED_CALLS]; /* by number, as decoded; a diverted one twice */
	uint64_t exec_stops, signal_stops, group_stops;
	uint64_t walks, known_walks; /* names looked up; those among them whose answer was remembered */
	struct rusage before;	     /* of the tracer */
};

void counts_begin(struct counts *counts);
/* `count` lines on STATUS_FD: PROTOCOL.md. */
void counts_tell(const struct counts *counts, const struct trace_result *result, int status_fd);
