/* The last step of G: from here on the tracer sees each call, so that what the search looked at is on record. */
#pragma once

/* Goes to `cwd` and execs `argv` by the rules of execvp(3) in the PATH of `envp`. Where that fails: one line on
 * descriptor 2, and exit status 127 (not found) or 126. Never returns. */
_Noreturn void command_exec(const char *cwd, const char *const *argv, const char *const *envp);

/* The value of NAME in `envp`, or NULL. */
const char *command_variable(const char *const *envp, const char *name);
