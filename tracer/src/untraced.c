/* See untraced.h. */
#include "untraced.h"

#include <errno.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleanup.h"
#include "launch.h"
#include "out.h"
#include "trace.h"

static int failed(struct trace_result *result, const char *where)
{
	result->where = where;
	return result->error = -errno;
}

int untraced_run(const struct launched *launched, struct out *events, struct trace_result *result)
{
	cleanup_fd int go = launched->go_fd;

	memset(result, 0, sizeof *result);
	out_incomplete(events, "untraced", "", 0);
	if (RETRY(write(go, "!", 1)) != 1)
		return failed(result, "start");
	if (RETRY(wait4(launched->init_pid, &result->status, __WALL, &result->usage)) < 0)
		return failed(result, "wait4");
	result->init_ended = result->finished = true;
	result->init_status = result->status;
	return 0;
}
