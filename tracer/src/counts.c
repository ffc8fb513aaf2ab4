/* See counts.h. */
#include "counts.h"

#include "decode.h"
#include "status.h"
#include "trace.h"

void counts_begin(struct counts *counts)
{
	getrusage(RUSAGE_SELF, &counts->before);
}

static uint64_t microseconds(struct timeval from, struct timeval to)
{
	return (uint64_t)((to.tv_sec - from.tv_sec) * 1000000 + to.tv_usec - from.tv_usec);
}

static void tell(int fd, const char *name, uint64_t number)
{
	status_line(fd, "count %s %llu", name, (unsigned long long)number);
}

void counts_tell(const struct counts *counts, const struct trace_result *result, int fd)
{
	struct rusage now;

	getrusage(RUSAGE_SELF, &now);
	tell(fd, "notifications", result->notifications);
	tell(fd, "diverted", result->diverted);
	tell(fd, "entry_stops", result->seccomp_stops);
	tell(fd, "exit_stops", result->exit_stops);
	tell(fd, "exec_stops", counts->exec_stops);
	tell(fd, "birth_stops", result->other_stops);
	tell(fd, "signal_stops", counts->signal_stops + counts->group_stops);
	tell(fd, "walks", counts->walks);
	tell(fd, "known_walks", counts->known_walks);
	tell(fd, "user_us", microseconds(counts->before.ru_utime, now.ru_utime));
	tell(fd, "system_us", microseconds(counts->before.ru_stime, now.ru_stime));
	tell(fd, "switches", (uint64_t)(now.ru_nvcsw - counts->before.ru_nvcsw));
	tell(fd, "forced_switches", (uint64_t)(now.ru_nivcsw - counts->before.ru_nivcsw));
	for (unsigned number = 0; number < COUNTED_CALLS; number++)
		if (counts->calls[number] > 0)
			status_line(fd, "count call.%s %llu", call_find(number)->name,
				    (unsigned long long)counts->calls[number]);
}
