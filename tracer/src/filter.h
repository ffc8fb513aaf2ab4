/* The seccomp program that the whole tree inherits. Generated from tracer/syscalls.toml. */
#pragma once

#include <stdbool.h>

/* Installs the filter in the calling thread; no_new_privs must be set. From here on the calls that it traces fail with
 * ENOSYS until a tracer has seized the caller. With `notify`, and where the kernel can, some of them give notifications
 * in place of stops (notify.h): *listener is the descriptor for these then, else -1. 0 or -errno. */
int filter_install(bool notify, int *listener);
