/* The trace loop. See trace.h, and ptrace(2) for every rule that it keeps:
 *
 * - PTRACE_SEIZE, never ATTACH or a SIGSTOP: no stop is made up, and group-stops can be told from signals.
 * - A task is resumed in the same turn in which its stop was seen, but for one that waits for another's call to end
 *   (order.h), which is a matter of the kernel alone. So a vfork parent, which the kernel holds, needs no thought.
 * - Tasks are known from their own first stop or their parent's fork event, whichever comes first.
 * - ESRCH from a request means that the task was killed at its stop: its end comes by wait(2).
 * - After a seccomp stop PTRACE_SYSCALL gives the exit stop of that very call, since the kernel has passed the entry
 *   stop already (Linux 4.8). PTRACE_CONT gives none. */
#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleanup.h"
#include "decode.h"
#include "launch.h"

#define MOST_MEMORY ((rlim_t)1 << 30)

/* What stopped a task: one enum, and one switch in handle_stop(). */
enum stop {
	STOP_SECCOMP,  /* a call is about to run */
	STOP_SYSCALL,  /* it has run */
	STOP_EXEC,     /* it has become another program */
	STOP_CREATION, /* it made a task */
	STOP_STARTED,  /* a new task, or an interrupt that nobody asked for */
	STOP_GROUP,    /* job control */
	STOP_SIGNAL,   /* a signal is to be delivered */
};

struct loop {
	struct tracer tracer;
	struct trace_result *result;
	pid_t guest, init;
};

static enum stop stop_of(int status)
{
	int signal = WSTOPSIG(status);

	switch (status >> 16) {
	case PTRACE_EVENT_SECCOMP:
		return STOP_SECCOMP;
	case PTRACE_EVENT_EXEC:
		return STOP_EXEC;
	case PTRACE_EVENT_FORK:
	case PTRACE_EVENT_VFORK:
	case PTRACE_EVENT_CLONE:
		return STOP_CREATION;
	case PTRACE_EVENT_STOP:
		return signal == SIGTRAP ? STOP_STARTED : STOP_GROUP;
	default:
		return signal == (SIGTRAP | 0x80) ? STOP_SYSCALL : STOP_SIGNAL;
	}
}

/* Every request goes through here. False: the task is gone, or the loop has failed. */
static bool request(struct loop *loop, int what, pid_t tid, uintptr_t address, uintptr_t data)
{
	if (ptrace((enum __ptrace_request)what, tid, address, data) >= 0)
		return true;
	if (errno != ESRCH && loop->result->error == 0) {
		loop->result->error = -errno;
		loop->result->where = "ptrace";
	}
	return false;
}

bool still_stopped(const struct task *task)
{
	unsigned long message;

	return ptrace(PTRACE_GETEVENTMSG, task->tid, 0, &message) >= 0 || errno != ESRCH;
}

static bool call_info(struct loop *loop, pid_t tid, struct __ptrace_syscall_info *info)
{
	return request(loop, PTRACE_GET_SYSCALL_INFO, tid, sizeof *info, (uintptr_t)info);
}

/* Lets the call that the task is about to make fail with ENOSYS. */
static void refuse_call(struct loop *loop, pid_t tid)
{
#if defined(__x86_64__)
	if (request(loop, PTRACE_POKEUSER, tid, offsetof(struct user_regs_struct, orig_rax), (uintptr_t)-1L))
		request(loop, PTRACE_POKEUSER, tid, offsetof(struct user_regs_struct, rax), (uintptr_t)-ENOSYS);
#else
#error "no way to refuse a call on this architecture"
#endif
}

/* A call of another calling convention is refused: nothing here could read it. */
static void foreign_call(struct loop *loop, pid_t tid, const struct __ptrace_syscall_info *info)
{
	char detail[48];

	snprintf(detail, sizeof detail, "%x:%llu", info->arch, (unsigned long long)info->seccomp.nr);
	incomplete(&loop->tracer, "foreign_arch", detail);
	refuse_call(loop, tid);
}

enum { STAY = -1 }; /* instead of a request: the task remains at its stop */

/* The entry of a call whose arguments are known. */
static int proceed(struct loop *loop, struct task *task)
{
	switch (decode_enter(&loop->tracer, task)) {
	case AFTER_WANTS_EXIT:
		return PTRACE_SYSCALL;
	case AFTER_WAITS:
		return STAY;
	case AFTER_CONTINUE:
		break;
	}
	order_end(&loop->tracer, task);
	return PTRACE_CONT;
}

/* The filter's SECCOMP_RET_DATA is not looked at: a filter of the guest's own may have put its own there. */
static int on_seccomp(struct loop *loop, struct task *task)
{
	struct __ptrace_syscall_info info;
	char number[24];

	loop->result->seccomp_stops++;
	order_end(&loop->tracer, task); /* a call that the kernel restarts comes by anew */
	if (!call_info(loop, task->tid, &info) || info.op != PTRACE_SYSCALL_INFO_SECCOMP)
		return PTRACE_CONT;
	if (info.arch != TRACED_AUDIT_ARCH || (info.seccomp.nr & FOREIGN_NUMBER_BIT)) {
		foreign_call(loop, task->tid, &info);
		return PTRACE_CONT;
	}
	const struct call_row *row = call_find(info.seccomp.nr);
	if (row == NULL) {
		snprintf(number, sizeof number, "%llu", (unsigned long long)info.seccomp.nr);
		incomplete(&loop->tracer, "unknown_syscall", number);
		return PTRACE_CONT;
	}
	task->pending.row = row;
	for (int i = 0; i < 6; i++)
		task->pending.args[i] = info.seccomp.args[i];
	if (row->flags >= 0)
		task->pending.flags = (uint32_t)info.seccomp.args[row->flags];
	int resume = proceed(loop, task);
	if (info.seccomp.nr == SYS_chdir || info.seccomp.nr == SYS_fchdir)
		task->cwd_generation = 0; /* when it stops next, it is where it went */
	return resume;
}

static void on_exit_stop(struct loop *loop, struct task *task)
{
	struct __ptrace_syscall_info info;

	loop->result->exit_stops++;
	if (task->pending.row == NULL || !call_info(loop, task->tid, &info) || info.op != PTRACE_SYSCALL_INFO_EXIT)
		return;
	int64_t result = info.exit.rval;
	if (result <= -512 && result >= -516)
		result = -EINTR; /* -ERESTARTSYS … -ERESTART_RESTARTBLOCK: it will enter again, or fail so */
	decode_leave(&loop->tracer, task, result);
	order_end(&loop->tracer, task);
}

static struct task *on_exec(struct loop *loop, struct task *task)
{
	unsigned long former = 0;

	/* An exec from a thread that is not the leader goes on under the leader's id; the leader is gone, unreported. */
	if (request(loop, PTRACE_GETEVENTMSG, task->tid, 0, (uintptr_t)&former) && (pid_t)former != task->tid) {
		if (task->pending.row != NULL && !task->waits)
			decode_lost(&loop->tracer, task);
		decode_settle(&loop->tracer, task);
		order_end(&loop->tracer, task);
		task = tasks_rename(&loop->tracer.tasks, (pid_t)former, task->tid);
	}
	task_new_memory(task);
	if (task->pending.row != NULL)
		decode_exec_done(&loop->tracer, task);
	order_end(&loop->tracer, task);
	return task;
}

/* The flags of the clone(2) that the task is in; of what is not understood, as if all were shared. */
static unsigned long creation_flags(struct loop *loop, pid_t tid)
{
	struct user_regs_struct registers;

	if (request(loop, PTRACE_GETREGS, tid, 0, (uintptr_t)&registers)) {
#if defined(__x86_64__)
		if (registers.orig_rax == SYS_fork)
			return 0;
		if (registers.orig_rax == SYS_vfork)
			return CLONE_VM;
		if (registers.orig_rax == SYS_clone)
			return registers.rdi;
#endif
	}
	return CLONE_VM | CLONE_FS;
}

/* A new task is known from here on, though it may be killed before it stops for the first time. */
static void on_creation(struct loop *loop, struct task *parent)
{
	unsigned long created = 0;

	if (!request(loop, PTRACE_GETEVENTMSG, parent->tid, 0, (uintptr_t)&created))
		return;
	unsigned long flags = creation_flags(loop, parent->tid);
	struct task *child = tasks_get(&loop->tracer.tasks, (pid_t)created);
	affinity_made(&loop->tracer, parent, (pid_t)created);
	if (flags & CLONE_FS)
		parent->shares_folder = child->shares_folder = true;
	if (flags & CLONE_VM)
		task_share_memory(child, parent);
	else
		task_new_memory(child);
}

static void handle_stop(struct loop *loop, pid_t tid, int status)
{
	struct task *task = tasks_get(&loop->tracer.tasks, tid);
	int resume = PTRACE_CONT, signal = 0;

	decode_looked(&loop->tracer, task);
	switch (stop_of(status)) {
	case STOP_SECCOMP:
		resume = on_seccomp(loop, task);
		break;
	case STOP_SYSCALL:
		on_exit_stop(loop, task);
		break;
	case STOP_EXEC:
		task = on_exec(loop, task);
		break;
	case STOP_CREATION:
		on_creation(loop, task);
		loop->result->other_stops++;
		break;
	case STOP_STARTED:
		affinity_born(&loop->tracer, task);
		loop->result->other_stops++;
		break;
	case STOP_GROUP:
		resume = PTRACE_LISTEN;
		break;
	case STOP_SIGNAL:
		signal = WSTOPSIG(status);
		break;
	}
	if (resume == STAY)
		return;
	if (resume != PTRACE_LISTEN)
		affinity_stop(&loop->tracer, task);
	request(loop, resume, tid, 0, (uintptr_t)signal);
}

/* Tasks that waited for another one's call to end. */
static void resume_waiting(struct loop *loop)
{
	pid_t tid;

	while ((tid = order_next(&loop->tracer)) != 0) {
		struct task *task = tasks_find(&loop->tracer.tasks, tid);
		int resume = proceed(loop, task);
		if (resume != STAY)
			request(loop, resume, tid, 0, 0);
	}
}

static pid_t group_of(struct loop *loop, pid_t tid, char *name, size_t size)
{
	char path[32], text[512];

	snprintf(path, sizeof path, "%d/status", tid);
	cleanup_fd int fd = openat(loop->tracer.proc_fd, path, O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (len <= 0)
		return 0;
	text[len] = '\0';
	const char *line = strstr(text, "\nTgid:");
	int group = 0;
	if (line == NULL || sscanf(line, "\nTgid: %d", &group) != 1 || sscanf(text, "Name: %16[^\n]", name) != 1)
		return 0;
	name[size - 1] = '\0';
	return group;
}

/* The main process has ended: who is left will be killed with the pid namespace. Named now, while they have names,
 * and reported when they are seen to be killed: one that just ends by itself was no survivor. */
static void note_survivors(struct loop *loop)
{
	struct tasks *tasks = &loop->tracer.tasks;

	for (uint32_t at = 0; at <= tasks->mask; at++) {
		struct task *task = tasks->slots[at];
		if (task == NULL || task->tid <= 0)
			continue;
		task->tgid = group_of(loop, task->tid, task->name, sizeof task->name);
		task->survivor = task->tgid == task->tid;
	}
}

static void handle_end(struct loop *loop, pid_t tid, int status, const struct rusage *usage)
{
	struct task *task = tasks_find(&loop->tracer.tasks, tid);

	if (tid == loop->init) {
		loop->result->init_ended = true;
		loop->result->init_status = status;
		if (tid != loop->guest)
			return;
	}
	if (task != NULL && task->survivor && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
		out_killed(loop->tracer.out, tid, task->name, strlen(task->name));
	if (task != NULL && task->pending.row != NULL && !task->waits)
		decode_lost(&loop->tracer, task);
	if (task != NULL) {
		decode_settle(&loop->tracer, task);
		order_end(&loop->tracer, task);
	}
	tasks_remove(&loop->tracer.tasks, tid);
	if (tid == loop->guest) {
		loop->result->finished = true;
		loop->result->status = status;
		loop->result->usage = *usage;
		note_survivors(loop);
	}
}

/* The action has failed: everything in the sandbox dies, and its ends are still collected. */
static void end_all(struct loop *loop)
{
	kill(loop->init, SIGKILL);
}

static void run(struct loop *loop)
{
	bool ended = false;

	for (;;) {
		struct rusage usage;
		int status;
		pid_t tid = wait4(-1, &status, __WALL, &usage);

		affinity_tick(&loop->tracer);
		if (tid < 0 && errno == EINTR)
			continue;
		if (tid < 0) {
			if (errno != ECHILD && loop->result->error == 0) {
				loop->result->error = -errno;
				loop->result->where = "wait4";
			}
			return;
		}
		if (WIFSTOPPED(status))
			handle_stop(loop, tid, status);
		else
			handle_end(loop, tid, status, &usage);
		resume_waiting(loop);
		if (loop->result->error == 0 && out_error(loop->tracer.out) != 0) {
			loop->result->error = out_error(loop->tracer.out);
			loop->result->where = "events";
		}
		if (loop->result->error != 0 && !ended) {
			ended = true;
			end_all(loop);
		}
	}
}

static int failed(struct trace_result *result, const char *where)
{
	result->where = where;
	return result->error = -errno;
}

static int start(struct loop *loop, const struct launched *launched)
{
	unsigned long options = PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACESECCOMP | PTRACE_O_TRACEFORK |
				PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC;

	if (ptrace(PTRACE_SEIZE, launched->guest_pid, 0, options) < 0)
		return failed(loop->result, "ptrace(PTRACE_SEIZE)");
	task_new_memory(tasks_get(&loop->tracer.tasks, launched->guest_pid));
	cleanup_fd int go = launched->go_fd;
	if (RETRY(write(go, "!", 1)) != 1)
		return failed(loop->result, "start");
	return 0;
}

/* T's own root, to go back to; from here on T's paths are the guest's. */
static int enter_root(int root_fd, int *own_root)
{
	*own_root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (*own_root < 0 || fchdir(root_fd) < 0 || chroot(".") < 0)
		return -errno;
	return 0;
}

/* What the guest names is remembered, so it decides on T's memory: better that T fails than the machine. */
static void limit_memory(void)
{
#if !defined(__SANITIZE_ADDRESS__)
	struct rlimit limit = { .rlim_cur = MOST_MEMORY, .rlim_max = RLIM_INFINITY };
	struct rlimit now;

	if (getrlimit(RLIMIT_DATA, &now) == 0 && (now.rlim_cur == RLIM_INFINITY || now.rlim_cur > MOST_MEMORY)) {
		limit.rlim_max = now.rlim_max;
		setrlimit(RLIMIT_DATA, &limit);
	}
#endif
}

int trace_run(const struct launched *launched, struct out *events, struct trace_result *result)
{
	struct loop loop = { .result = result, .guest = launched->guest_pid, .init = launched->init_pid };
	cleanup_fd int own_root = -1;
	cleanup_fd int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);

	limit_memory();
	memset(result, 0, sizeof *result);
	loop.tracer.out = events;
	loop.tracer.proc_fd = proc;
	loop.tracer.generation = 1;
	affinity_init(&loop.tracer);
	if (proc < 0)
		failed(result, "open /proc");
	else if ((errno = -tasks_init(&loop.tracer.tasks)) != 0)
		failed(result, "memory");
	else if ((errno = -enter_root(launched->root_fd, &own_root)) != 0)
		failed(result, "chroot");
	else
		start(&loop, launched);
	if (result->error != 0)
		end_all(&loop);
	run(&loop);
	affinity_stop_using(&loop.tracer); /* its timer, too */
	if (own_root >= 0 && (fchdir(own_root) < 0 || chroot(".") < 0) && result->error == 0)
		failed(result, "chroot");
	tasks_free(&loop.tracer.tasks);
	walk_free(&loop.tracer);
	order_free(&loop.tracer.order);
	free(loop.tracer.late);
	return result->error;
}
