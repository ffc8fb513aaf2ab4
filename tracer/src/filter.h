/* The seccomp program that the whole tree inherits. Generated from tracer/syscalls.toml. */
#pragma once

/* Installs the filter in the calling thread; no_new_privs must be set. From here on the calls it traces
 * fail with ENOSYS until a tracer has seized the caller. 0 or -errno. */
int filter_install(void);
