/* The index of calls, the dispatch to decoders, and what they share. */
#include "decode.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <string.h>

static const struct call_row call_index[] = {
#include "call_index_generated.h"
};

struct decoder_halves {
	enum after (*enter)(struct tracer *t, struct task *task);
	void (*leave)(struct tracer *t, struct task *task, int64_t result);
	bool lasts; /* it may change the tree */
};

static enum after unmodelled_enter(struct tracer *t, struct task *task)
{
	incomplete(t, "unmodelled", task->pending.row->name);
	return AFTER_CONTINUE;
}

static enum after credentials_enter(struct tracer *t, struct task *task)
{
	(void)t;
	(void)task;
	return AFTER_WANTS_EXIT;
}

static const struct decoder_halves decoders[DECODER_COUNT] = {
	[DECODE_LOOK] = { look_enter, NULL, false },
	[DECODE_LOOK_FD] = { look_fd_enter, NULL, false },
	[DECODE_LIST] = { list_enter, NULL, false },
	[DECODE_OPEN] = { open_enter, open_leave, true },
	[DECODE_OPENAT2] = { open_enter, open_leave, true },
	[DECODE_MAKE] = { make_enter, make_leave, true },
	[DECODE_REMOVE] = { remove_enter, remove_leave, true },
	[DECODE_RENAME] = { rename_enter, rename_leave, true },
	[DECODE_LINK] = { link_enter, link_leave, true },
	[DECODE_TRUNCATE] = { truncate_enter, truncate_leave, true },
	[DECODE_ATTR] = { attr_enter, attr_leave, true },
	[DECODE_ATTR_FD] = { attr_fd_enter, attr_fd_leave, true },
	[DECODE_UNMODELLED] = { unmodelled_enter, NULL, false },
	[DECODE_EXEC] = { exec_enter, exec_leave, false },
	[DECODE_CONNECT] = { connect_enter, connect_leave, false },
	[DECODE_BIND] = { bind_enter, bind_leave, true },
	[DECODE_SENDTO] = { sendto_enter, NULL, false },
	[DECODE_SENDMSG] = { sendmsg_enter, NULL, false },
	[DECODE_SENDMMSG] = { sendmmsg_enter, NULL, false },
	[DECODE_CREDENTIALS] = { credentials_enter, credentials_leave, false },
};

const struct call_row *call_find(uint64_t number)
{
	if (number >= sizeof call_index / sizeof call_index[0] || call_index[number].name == NULL)
		return NULL;
	return &call_index[number];
}

void incomplete(struct tracer *t, const char *reason, const char *detail)
{
	out_incomplete(t->out, reason, detail, strlen(detail));
}

static bool is_open(const struct task *task)
{
	return task->pending.row->decoder == DECODE_OPEN || task->pending.row->decoder == DECODE_OPENAT2;
}

enum after decode_enter(struct tracer *t, struct task *task)
{
	const struct decoder_halves *decoder = &decoders[task->pending.row->decoder];

	if (decoder->enter == NULL || (is_open(task) && !open_prepare(t, task)))
		return AFTER_CONTINUE;
	if (order_waits(t, task))
		return AFTER_WAITS;
	order_before(t, task);
	enum after after = decoder->enter(t, task);
	if (after == AFTER_WANTS_EXIT)
		order_begin(t, task);
	return after;
}

void decode_leave(struct tracer *t, struct task *task, int64_t result)
{
	if (decoders[task->pending.row->decoder].leave != NULL)
		decoders[task->pending.row->decoder].leave(t, task, result);
}

static bool there(const struct tracer *t, uint32_t path)
{
	struct stat st;

	return lstat(intern_bytes(out_paths(t->out), path), &st) == 0;
}

/* What a call that was cut off by SIGKILL may have done: the names tell, and where they don't, it counts as done. */
static bool may_have_happened(const struct tracer *t, const struct pending *call)
{
	bool was = call->first.what == FOUND_OBJECT, could = call->first.what == FOUND_ABSENT;

	switch ((int)call->row->decoder) {
	case DECODE_OPEN:
	case DECODE_OPENAT2:
		return was || (could && there(t, call->first.path));
	case DECODE_MAKE:
	case DECODE_BIND:
		return could && there(t, call->first.path);
	case DECODE_REMOVE:
		return was && !there(t, call->first.path);
	case DECODE_RENAME:
		return was && !there(t, call->first.path) && call->second.what != FOUND_NOTHING;
	case DECODE_LINK:
		return call->second.what == FOUND_ABSENT && there(t, call->second.path);
	default:
		return was;
	}
}

void decode_lost(struct tracer *t, struct task *task)
{
	struct pending *call = &task->pending;
	bool exchange = call->row->decoder == DECODE_RENAME && call->row->flags >= 0 && (call->flags & RENAME_EXCHANGE);

	if (!decoders[call->row->decoder].lasts)
		return;
	names_changed(t);
	if (exchange)
		incomplete(t, "lost_task", call->row->name); /* both names are there before and after */
	else if (!may_have_happened(t, call))
		return;
	else if (is_open(task))
		open_lost(t, task);
	else
		decode_leave(t, task, 0);
}

struct found argument_walk(struct tracer *t, struct task *task, int8_t dirfd, int8_t path)
{
	char name[PATH_MAX];
	const struct pending *call = &task->pending;
	uint64_t flags = call->row->flags < 0 ? 0 : call->flags;
	bool follow = !call->row->nofollow;
	ssize_t len;

	if (flags & AT_SYMLINK_NOFOLLOW)
		follow = false;
	if (flags & AT_SYMLINK_FOLLOW)
		follow = true;
	/* futimens and, since 6.11, fstatat pass no string for "the descriptor itself". */
	if (call->args[path] == 0 && dirfd >= 0)
		len = call->row->param == META_TIMES || (flags & AT_EMPTY_PATH) ? 0 : -EFAULT;
	else
		len = guest_path(t, task, call->args[path], name);
	if (len == 0 && dirfd >= 0 &&
	    ((flags & AT_EMPTY_PATH) || call->args[path] == 0 || call->row->param == EV_LINK))
		return walk_fd(t, task, dirfd_argument(dirfd, call));
	if (len <= 0)
		return (struct found){ .what = FOUND_NOTHING };
	struct walk_from from = { .dirfd = dirfd_argument(dirfd, call), .follow = follow };
	return walk_at(t, task, from, name, (size_t)len);
}

static bool is_statx(const struct pending *call)
{
	return strcmp(call->row->name, "statx") == 0;
}

/* statx says what it wants; without links, size and time it is no more than a probe. */
static bool wants_little(const struct pending *call)
{
	return is_statx(call) && !(call->args[3] & (STATX_NLINK | STATX_MTIME | STATX_SIZE | STATX_BLOCKS));
}

/* Shells, git and gcc compare $PWD with "." by inode only, by a stat that follows symlinks; the reader of events may
 * treat such a one as a probe. A program that lists "." takes lstat or statx. */
static bool is_own_cwd(struct tracer *t, struct task *task, struct found found)
{
	const struct pending *call = &task->pending;
	char first[2] = "";

	if (found.type != S_IFDIR || call->row->nofollow || (call->flags & AT_SYMLINK_NOFOLLOW) || is_statx(call))
		return false;
	if (guest_read(t, task, call->args[call->row->path], first, 2) < 2)
		return false;
	if (first[0] != '/' && memcmp(first, ".", 2) != 0)
		return false;
	struct found cwd = walk_fd_name(t, task, AT_FDCWD);
	return cwd.what == FOUND_OBJECT && cwd.path == found.path;
}

static void report_look(struct tracer *t, struct task *task, struct found found)
{
	unsigned kind = task->pending.row->param;

	if (found.what != FOUND_OBJECT)
		return;
	if (kind == EV_STAT && wants_little(&task->pending))
		out_saw(t->out, EV_PROBE, found.path);
	else if (kind == EV_STAT)
		out_saw_stat(t->out, found.path, is_own_cwd(t, task, found));
	else if (kind == EV_LINK && found.type != S_IFLNK)
		out_saw(t->out, EV_PROBE, found.path);
	else
		out_saw(t->out, kind, found.path);
}

enum after look_enter(struct tracer *t, struct task *task)
{
	report_look(t, task, argument_walk(t, task, task->pending.row->dirfd, task->pending.row->path));
	return AFTER_CONTINUE;
}

enum after look_fd_enter(struct tracer *t, struct task *task)
{
	struct found found = walk_fd_name(t, task, (int)(uint32_t)task->pending.args[task->pending.row->path]);

	if (found.what == FOUND_OBJECT)
		out_saw(t->out, task->pending.row->param, found.path);
	return AFTER_CONTINUE;
}

enum after list_enter(struct tracer *t, struct task *task)
{
	int fd = (int)(uint32_t)task->pending.args[task->pending.row->path];
	struct found found = walk_fd_name(t, task, fd);

	if (found.what == FOUND_OBJECT && !out_was_seen(t->out, EV_LIST, found.path) &&
	    walk_fd_type(t, task, fd) == S_IFDIR)
		out_saw(t->out, EV_LIST, found.path);
	return AFTER_CONTINUE;
}

void credentials_leave(struct tracer *t, struct task *task, int64_t result)
{
	if (result >= 0)
		out_credentials(t->out, task->tid);
}
