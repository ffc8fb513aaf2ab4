/* What is done with the registers of a task at a stop: the one file that another architecture would have to add to.
 *
 * Every function gives 0 or -errno; -ESRCH: the task is gone. */
#pragma once

#include <sys/types.h>

struct task;

/* The call that the task is about to make will fail with ENOSYS. */
int refuse_call(pid_t tid);
/* The flags of the fork(2), vfork(2) or clone(2) that the task is in; of what is not understood, as if all were shared. */
int creation_flags(pid_t tid, unsigned long *flags);

/* The stop of an interrupt that took the task out of its wait (notify.h): it makes its call again and stops for it then.
 * If it was out of its wait already, its call comes by notification again. */
int ask_for_stop(struct task *task);
/* The call that was made again for a stop gets the sixth argument back that the task had. */
int restore_argument(struct task *task);
/* The stop of a signal, which may have taken the task out of its wait: the call is made again after the handler. */
int repeat_after_signal(struct task *task);
