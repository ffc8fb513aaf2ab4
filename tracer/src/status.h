/* Lines on STATUS_FD: what became of the action, and why it has no outcome when it has none. See PROTOCOL.md. */
#pragma once

#include "failure.h"

/* Writes one line. 0 or -errno. */
__attribute__((format(printf, 2, 3))) int status_line(int fd, const char *format, ...);

/* Writes an `error` line. Control characters in the text become '?', so that a hostile path can't forge a line. */
int status_failure(int fd, const struct failure *failure);
