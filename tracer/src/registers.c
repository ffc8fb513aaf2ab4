/* See registers.h. */
#include "registers.h"

#include <errno.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>

#include "decode.h"
#include "notify.h"

#if !defined(__x86_64__)
#error "no way to change a call on this architecture"
#endif

#define PLACE(name) offsetof(struct user_regs_struct, name)

enum { ERESTARTSYS = 512, ERESTARTNOINTR = 513 }; /* what the kernel says to itself, linux/errno.h */

static int get(pid_t tid, struct user_regs_struct *registers)
{
	return ptrace(PTRACE_GETREGS, tid, NULL, registers) < 0 ? -errno : 0;
}

static int put(pid_t tid, size_t place, int64_t value)
{
	return ptrace(PTRACE_POKEUSER, tid, place, value) < 0 ? -errno : 0;
}

int refuse_call(pid_t tid)
{
	int failed = put(tid, PLACE(orig_rax), -1);

	return failed ? failed : put(tid, PLACE(rax), -ENOSYS);
}

int creation_flags(pid_t tid, unsigned long *flags)
{
	struct user_regs_struct registers;
	int failed = get(tid, &registers);

	*flags = CLONE_VM | CLONE_FS;
	if (!failed && registers.orig_rax == SYS_fork)
		*flags = 0;
	if (!failed && registers.orig_rax == SYS_vfork)
		*flags = CLONE_VM;
	if (!failed && registers.orig_rax == SYS_clone)
		*flags = registers.rdi;
	return failed;
}

/* In a call that comes by notification, and that is to be made again. */
static bool was_waiting(const struct user_regs_struct *registers)
{
	int64_t result = (int64_t)registers->rax;
	const struct call_row *row = call_find(registers->orig_rax);

	return (result == -ERESTARTSYS || result == -ERESTARTNOINTR) && row != NULL && notify_row(row);
}

int ask_for_stop(struct task *task)
{
	struct user_regs_struct registers;
	int failed = get(task->tid, &registers);

	task->divert = false;
	if (failed || !was_waiting(&registers))
		return failed;
	task->diverted = true;
	task->argument = registers.r9;
	failed = put(task->tid, PLACE(r9), (int64_t)WANTS_STOP);
	return failed ? failed : put(task->tid, PLACE(rax), -ERESTARTNOINTR);
}

int restore_argument(struct task *task)
{
	task->diverted = false;
	return put(task->tid, PLACE(r9), (int64_t)task->argument);
}

int repeat_after_signal(struct task *task)
{
	struct user_regs_struct registers;
	int failed = get(task->tid, &registers);

	if (failed || !was_waiting(&registers) || task->began == call_find(registers.orig_rax))
		return failed;
	if (task->diverted) /* the handler may never come back to the call */
		failed = restore_argument(task);
	return failed ? failed : put(task->tid, PLACE(rax), -ERESTARTNOINTR);
}
