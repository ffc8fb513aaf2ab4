/* CONTROL_FD: any byte on it, or its end, kills the sandbox's init at once, whatever T is doing. */
#pragma once

#include <stdbool.h>

/* From here on the end of `control_fd` (a pipe or a socket) kills the process of `init_pidfd`. 0 or -errno. */
int control_watch(int control_fd, int init_pidfd);

/* Whether that has happened. */
bool control_fired(void);
