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
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleanup.h"
#include "decode.h"
#include "launch.h"
#include "notify.h"
#include "registers.h"
#include "survivors.h"

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
	struct notify notify;
	bool more; /* wait(2) may have more to tell */
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

/* Every request's outcome goes through here. False: the task is gone, or the loop has failed. */
static bool done(struct loop *loop, int outcome)
{
	if (outcome < 0 && outcome != -ESRCH && loop->result->error == 0) {
		loop->result->error = outcome;
		loop->result->where = "ptrace";
	}
	return outcome >= 0;
}

static bool request(struct loop *loop, int what, pid_t tid, uintptr_t address, uintptr_t data)
{
	return done(loop, ptrace((enum __ptrace_request)what, tid, address, data) < 0 ? -errno : 0);
}

bool still_stopped(const struct tracer *t, const struct task *task)
{
	unsigned long message;

	if (t->notified != NULL && t->notified->request.pid == (unsigned)task->tid)
		return notify_waits(t->notified);
	return ptrace(PTRACE_GETEVENTMSG, task->tid, 0, &message) >= 0 || errno != ESRCH;
}

static bool call_info(struct loop *loop, pid_t tid, struct __ptrace_syscall_info *info)
{
	return request(loop, PTRACE_GET_SYSCALL_INFO, tid, sizeof *info, (uintptr_t)info);
}

/* A call of another calling convention is refused: nothing here could read it. */
static void foreign_call(struct loop *loop, pid_t tid, const struct __ptrace_syscall_info *info)
{
	char detail[48];

	snprintf(detail, sizeof detail, "%x:%llu", info->arch, (unsigned long long)info->seccomp.nr);
	incomplete(&loop->tracer, "foreign_arch", detail);
	done(loop, refuse_call(tid));
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

static int enter_call(struct loop *loop, struct task *task, uint64_t number, const uint64_t *args)
{
	const struct call_row *row = call_find(number);

	if (number < COUNTED_CALLS)
		loop->tracer.counts.calls[number]++;
	task->pending.row = row;
	task->began = NULL;
	for (int i = 0; i < 6; i++)
		task->pending.args[i] = args[i];
	if (row->flags >= 0)
		task->pending.flags = (uint32_t)args[row->flags];
	int resume = proceed(loop, task);
	if (strcmp(row->name, "chdir") == 0 || strcmp(row->name, "fchdir") == 0)
		folder_moves(&loop->tracer, task);
	return resume;
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
	if (call_find(info.seccomp.nr) == NULL) {
		snprintf(number, sizeof number, "%llu", (unsigned long long)info.seccomp.nr);
		incomplete(&loop->tracer, "unknown_syscall", number);
		return PTRACE_CONT;
	}
	int resume = enter_call(loop, task, info.seccomp.nr, info.seccomp.args);
	/* The kernel runs the filter once more after this stop, so the argument is put back at the next. */
	return task->diverted && resume == PTRACE_CONT ? PTRACE_SYSCALL : resume;
}

static void on_exit_stop(struct loop *loop, struct task *task)
{
	struct __ptrace_syscall_info info;

	loop->result->exit_stops++;
	if (task->diverted)
		done(loop, restore_argument(task));
	if (task->pending.row == NULL || !call_info(loop, task->tid, &info) || info.op != PTRACE_SYSCALL_INFO_EXIT)
		return;
	int64_t result = info.exit.rval;
	if (result <= -512 && result >= -516) {
		task->began = task->pending.row;
		result = -EINTR; /* -ERESTARTSYS … -ERESTART_RESTARTBLOCK: it will enter again, or fail so */
	}
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
		folder_moved(&loop->tracer, task);
		task = tasks_rename(&loop->tracer.tasks, (pid_t)former, task->tid);
	}
	task_new_memory(task);
	if (task->pending.row != NULL)
		decode_exec_done(&loop->tracer, task);
	order_end(&loop->tracer, task);
	return task;
}

/* A new task is known from here on, though it may be killed before it stops for the first time. */
static void on_creation(struct loop *loop, struct task *parent)
{
	unsigned long created = 0;

	if (!request(loop, PTRACE_GETEVENTMSG, parent->tid, 0, (uintptr_t)&created))
		return;
	unsigned long flags;
	done(loop, creation_flags(parent->tid, &flags));
	struct task *child = tasks_get(&loop->tracer.tasks, (pid_t)created);
	affinity_made(&loop->tracer, parent, (pid_t)created);
	if (flags & CLONE_FS) {
		parent->shares_folder = child->shares_folder = true;
		parent->cwd_generation = 0; /* the child may have moved it already */
	}
	if (child->memory != NULL)
		return; /* its stop was told first, and by now it is another program */
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
		loop->tracer.counts.exec_stops++;
		break;
	case STOP_CREATION:
		on_creation(loop, task);
		loop->result->other_stops++;
		break;
	case STOP_STARTED:
		if (task->divert)
			done(loop, ask_for_stop(task));
		else
			affinity_born(&loop->tracer, task);
		loop->result->other_stops++;
		break;
	case STOP_GROUP:
		resume = PTRACE_LISTEN;
		loop->tracer.counts.group_stops++;
		break;
	case STOP_SIGNAL:
		if (loop->notify.fd >= 0)
			done(loop, repeat_after_signal(task));
		signal = WSTOPSIG(status);
		loop->tracer.counts.signal_stops++;
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
		folder_moved(&loop->tracer, task);
	}
	tasks_remove(&loop->tracer.tasks, tid);
	if (tid == loop->guest) {
		loop->result->finished = true;
		loop->result->status = status;
		loop->result->usage = *usage;
		note_survivors(&loop->tracer);
	}
}

/* The action has failed: everything in the sandbox dies, and its ends are still collected. */
static void end_all(struct loop *loop)
{
	kill(loop->init, SIGKILL);
}

/* A call that its task waits to make, and makes when it is let go. */
static void on_notification(struct loop *loop)
{
	const struct seccomp_notif *notified = &loop->notify.request;
	struct task *task = tasks_get(&loop->tracer.tasks, (pid_t)notified->pid);
	uint32_t number = (uint32_t)notified->data.nr;
	uint64_t args[6];

	for (int i = 0; i < 6; i++)
		args[i] = notified->data.args[i];
	decode_looked(&loop->tracer, task);
	loop->result->notifications++;
	order_end(&loop->tracer, task);
	if (call_find(number) != NULL && enter_call(loop, task, number, args) == PTRACE_CONT) {
		affinity_stop(&loop->tracer, task);
		notify_let_go(&loop->notify);
		return;
	}
	order_end(&loop->tracer, task);
	loop->notify.request.pid = 0;
	loop->result->diverted++;
	task->divert = true;
	request(loop, PTRACE_INTERRUPT, task->tid, 0, 0);
}

/* One child's news, if there is any. False: nobody is left to wait for. */
static bool wait_once(struct loop *loop, int options)
{
	struct rusage usage;
	int status;
	pid_t tid = wait4(-1, &status, __WALL | options, &usage);

	affinity_tick(&loop->tracer);
	if (tid < 0 && errno == EINTR)
		return true;
	if (tid < 0) {
		if (errno != ECHILD && loop->result->error == 0) {
			loop->result->error = -errno;
			loop->result->where = "wait4";
		}
		return false;
	}
	loop->more = tid > 0 && loop->notify.fd >= 0;
	if (tid == 0)
		return true;
	if (WIFSTOPPED(status))
		handle_stop(loop, tid, status);
	else
		handle_end(loop, tid, status, &usage);
	resume_waiting(loop);
	return true;
}

/* The next thing that happens, and whatever else wait(2) tells then. False: all is over. */
static bool turn(struct loop *loop)
{
	if (loop->more)
		return wait_once(loop, WNOHANG);
	if (loop->notify.fd < 0)
		return wait_once(loop, 0);
	switch (notify_receive(&loop->notify)) {
	case NOTIFIED:
		affinity_tick(&loop->tracer);
		on_notification(loop);
		break;
	case NOTIFIED_CHILD:
		loop->more = true;
		break;
	case NOTIFIED_NOTHING:
		affinity_tick(&loop->tracer);
		break;
	}
	return true;
}

static void run(struct loop *loop)
{
	bool ended = false;

	while (turn(loop)) {
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
	loop.tracer.notified = &loop.notify;
	counts_begin(&loop.tracer.counts);
	affinity_init(&loop.tracer);
	if ((errno = -notify_start(&loop.notify, launched->listener_fd)) != 0)
		failed(result, "listener");
	else if (proc < 0)
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
	notify_end(&loop.notify);
	if (own_root >= 0 && (fchdir(own_root) < 0 || chroot(".") < 0) && result->error == 0)
		failed(result, "chroot");
	result->counts = loop.tracer.counts;
	tasks_free(&loop.tracer.tasks);
	walk_free(&loop.tracer);
	order_free(&loop.tracer.order);
	free(loop.tracer.late);
	return result->error;
}
