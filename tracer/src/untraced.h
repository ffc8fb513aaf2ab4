/* The guest without a tracer, for measuring what tracing costs: in the same sandbox, with no filter and no stop.
 * Such an action is reported as incomplete, and so counts as having read everything. */
#pragma once

struct launched; /* launch.h */
struct out;
struct trace_result; /* trace.h */

/* As trace_run(). The status is init's, which ends as the guest did; a signal is told as 128 + its number. */
int untraced_run(const struct launched *launched, struct out *events, struct trace_result *result);
