/* C: pid 1 of the sandbox. It builds the sandbox, starts G, reaps, and ends when G has ended. */
#pragma once

#include "launch.h"

/* Everything C does; never returns. `parent` is a pidfd of T, `channel` C's and G's end of the socket pair. */
_Noreturn void init_run(const struct launch_request *request, int parent, int channel);
