/* open, openat, creat, openat2.
 *
 * An open that may create or write is walked before it happens, to know what was there. For a plain one that walk tells
 * all there is to tell, as long as nobody but the caller can change the path between the walk and the kernel's own: it
 * needs no stop at its exit. Where memory is shared, and where the outcome depends on who opens, /proc says at the exit
 * what was really opened; when that is just what the caller wrote, no symlink was passed and no walk is needed at all. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>

#include "cleanup.h"
#include "decode.h"

static struct walk_from open_from(const struct pending *call)
{
	bool exclusive = (call->flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL);

	return (struct walk_from){
		.dirfd = dirfd_argument(call->row->dirfd, call),
		.follow = !(call->flags & O_NOFOLLOW) && !exclusive,
		.in_root = call->row->decoder == DECODE_OPENAT2 && (call->args[4] & RESOLVE_IN_ROOT),
	};
}

bool open_may_change(const struct pending *call)
{
	if (call->flags & O_PATH)
		return false;
	return (call->flags & O_ACCMODE) != O_RDONLY || (call->flags & (O_CREAT | O_TRUNC));
}

bool open_prepare(struct tracer *t, struct task *task)
{
	struct pending *call = &task->pending;
	struct open_how how = {0};
	size_t size = call->args[3] < sizeof how ? call->args[3] : sizeof how;

	if (call->row->decoder == DECODE_OPEN) {
		if (call->row->flags < 0)
			call->flags = O_CREAT | O_WRONLY | O_TRUNC; /* creat */
		return true;
	}
	if (guest_read(t, task, call->args[2], &how, size) != (ssize_t)size)
		return false;
	call->flags = how.flags;
	call->args[4] = how.resolve; /* openat2 has four arguments */
	return true;
}

static struct found walk_given(struct tracer *t, struct task *task)
{
	const struct intern *paths = out_paths(t->out);
	uint32_t given = task->pending.given;

	return walk_at(t, task, open_from(&task->pending), intern_bytes(paths, given), intern_len(paths, given));
}

void open_report_early(struct tracer *t, struct task *task)
{
	struct found found = walk_given(t, task);

	if (found.what == FOUND_OBJECT)
		out_saw(t->out, found.type == S_IFREG && !(task->pending.flags & O_PATH) ? EV_READ : EV_PROBE, found.path);
}

/* Whether the path can be no other when the kernel reads it. */
static bool alone(const struct tracer *t, const struct task *task)
{
	return task->memory != NULL && task->memory->users == 1 && !t->shared_mappings;
}

/* A plain open whose facts are known before it is made: it is reported. */
static bool report_at_once(struct tracer *t, struct task *task)
{
	struct pending *call = &task->pending;

	if (call->row->decoder != DECODE_OPEN || t->order.changing > 0 || (call->flags & O_NOATIME) || !alone(t, task))
		return false;
	struct found found = walk_given(t, task);
	if (!found.sure)
		return false;
	bool reads = found.type == S_IFREG && !(call->flags & (O_PATH | O_DIRECTORY));
	if (found.what == FOUND_OBJECT)
		out_saw(t->out, reads ? EV_READ : EV_PROBE, found.path);
	if (found.what == FOUND_OBJECT && found.type != S_IFREG && found.type != S_IFDIR)
		task->began = call->row; /* a FIFO: it may wait, and be interrupted */
	return true;
}

enum after open_enter(struct tracer *t, struct task *task)
{
	struct pending *call = &task->pending;
	char path[PATH_MAX] not_zeroed;
	ssize_t len = guest_path(t, task, call->args[call->row->path], path);

	if (len <= 0)
		return AFTER_CONTINUE; /* EFAULT, ENAMETOOLONG or ENOENT, whatever is in the tree */
	if ((call->flags & O_TMPFILE) == O_TMPFILE) {
		struct found folder = walk_at(t, task, open_from(call), path, (size_t)len);
		if (folder.what == FOUND_OBJECT)
			out_saw(t->out, EV_PROBE, folder.path);
		return AFTER_CONTINUE; /* a file without a name, until linkat gives it one */
	}
	call->given = out_path(t->out, path, (size_t)len);
	if (open_may_change(call)) {
		call->first = walk_given(t, task);
		call->walked = true;
		if (call->first.what == FOUND_OBJECT)
			out_saw(t->out, EV_PROBE, call->first.path);
	} else if (report_at_once(t, task))
		return AFTER_CONTINUE;
	else if (t->order.changing > 0)
		open_report_early(t, task);
	return AFTER_WANTS_EXIT;
}

static void report_failed(struct tracer *t, struct task *task)
{
	if (task->pending.walked)
		return;
	struct found found = walk_given(t, task);
	if (found.what == FOUND_OBJECT)
		out_saw(t->out, EV_PROBE, found.path);
}

/* The symlinks passed on the way to what was opened. */
static void report_way(struct tracer *t, struct task *task, struct found opened)
{
	struct pending *call = &task->pending;

	if (!call->walked && (call->given != opened.path || open_from(call).in_root))
		(void)walk_given(t, task);
}

static void report_file(struct tracer *t, const struct pending *call, struct found opened)
{
	bool writes = (call->flags & O_ACCMODE) != O_RDONLY || (call->flags & O_TRUNC);

	if (call->walked && call->first.what == FOUND_ABSENT && (call->flags & O_CREAT)) {
		name_changed(t, call->first);
		if (opened.path != call->first.path)
			names_changed(t);
		out_did(t->out, EV_CREATE, opened.path);
		return;
	}
	if (writes)
		out_saw(t->out, EV_PROBE, opened.path);
	if (!(call->flags & O_TRUNC))
		out_saw(t->out, EV_READ, opened.path);
	if (writes)
		out_write(t->out, opened.path, (call->flags & O_TRUNC) != 0);
}

/* /proc/PID/mem is another task's memory, and /proc/PID/status tells on which CPUs a task may run. */
static void look_for_memory(struct tracer *t, const struct pending *call, struct found opened)
{
	const char *path = opened.what == FOUND_OBJECT ? intern_bytes(out_paths(t->out), opened.path) : "";
	const char *name = strrchr(path, '/');

	if (strncmp(path, "/proc/", 6) != 0)
		return;
	if (strcmp(name, "/mem") == 0 && (call->flags & O_ACCMODE) != O_RDONLY)
		t->shared_mappings = true;
	if (strcmp(name, "/status") == 0)
		affinity_stop_using(t);
}

void open_leave(struct tracer *t, struct task *task, int64_t result)
{
	struct pending *call = &task->pending;

	if (result < 0) {
		report_failed(t, task);
		return;
	}
	int fd = (int)result;
	struct found opened = walk_fd_name(t, task, fd);
	look_for_memory(t, call, opened);
	if (opened.what != FOUND_OBJECT) {
		if (call->walked && call->first.what == FOUND_ABSENT && (call->flags & O_CREAT)) {
			/* Made, and removed by somebody else before this stop. */
			names_changed(t);
			out_did(t->out, EV_CREATE, call->first.path);
		} else
			report_failed(t, task); /* a pipe by /dev/fd/63: the way to it counts */
		return;
	}
	report_way(t, task, opened);
	if (!call->walked && !(call->flags & O_PATH) && out_was_seen(t->out, EV_READ, opened.path))
		return;
	if (call->walked && call->first.what == FOUND_OBJECT && call->first.path == opened.path)
		opened.type = call->first.type;
	else if (opened.type == 0)
		opened.type = walk_fd_type(t, task, fd);
	if (opened.type == S_IFREG && !(call->flags & O_PATH))
		report_file(t, call, opened);
	else
		out_saw(t->out, EV_PROBE, opened.path);
}

void open_lost(struct tracer *t, struct task *task)
{
	/* Without a descriptor there is only the entry's walk to tell what it was; an open that wrote nothing is none. */
	if (task->pending.walked && (task->pending.first.what == FOUND_ABSENT || task->pending.first.type == S_IFREG))
		report_file(t, &task->pending, task->pending.first);
}
