/* Calls that change names: mkdir, symlink, mknod, unlink, rmdir, rename, link; and truncate.
 *
 * At the entry they are walked, which reports what was there or missing; at a successful exit the change is reported
 * with the places found then. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/stat.h>

#include "cleanup.h"
#include "decode.h"

static void saw(struct tracer *t, unsigned kind, struct found found)
{
	if (found.what == FOUND_OBJECT)
		out_saw(t->out, kind, found.path);
}

/* A place that a successful change must have had; the entry's walk may have lost a race against another task. */
static bool place(struct tracer *t, struct task *task, struct found *found, int8_t dirfd, int8_t path)
{
	if (found->what == FOUND_OBJECT || found->what == FOUND_ABSENT)
		return true;
	names_changed(t);
	*found = argument_walk(t, task, dirfd, path);
	if (found->what == FOUND_OBJECT || found->what == FOUND_ABSENT)
		return true;
	incomplete(t, "walk_failed", task->pending.row->name);
	return false;
}

/* Whether an object has this path now. Not to be told (a path too long for one lookup) counts as `expected`. */
static bool is_there(struct tracer *t, struct found found, bool expected, struct stat *status)
{
	const struct intern *paths = out_paths(t->out);

	if (found.what != FOUND_OBJECT && found.what != FOUND_ABSENT)
		return expected;
	if (lstat(intern_bytes(paths, found.path), status) == 0)
		return true;
	return errno == ENAMETOOLONG && expected;
}

/* The kernel reads a path after the entry's walk did, and another thread may have written over it between the two. A
 * descriptor would tell what was really opened; here the tree itself does, since no other task changes names until this
 * stop is over (order.h). What does not hold then was done somewhere else. */
static void confirm(struct tracer *t, const struct task *task, bool holds)
{
	if (holds)
		return;
	names_changed(t);
	incomplete(t, "unreadable_argument", task->pending.row->name);
}

/* Names are taken as they are: a symlink in the last place is not followed (open(2) is the exception). */
static struct found name_walk(struct tracer *t, struct task *task, int8_t dirfd, int8_t path)
{
	char name[PATH_MAX] not_zeroed;
	ssize_t len = guest_path(t, task, task->pending.args[path], name);
	struct walk_from from = { .dirfd = dirfd_argument(dirfd, &task->pending) };

	if (len <= 0)
		return (struct found){ .what = FOUND_NOTHING };
	return walk_at(t, task, from, name, (size_t)len);
}

enum after make_enter(struct tracer *t, struct task *task)
{
	struct pending *call = &task->pending;

	call->first = name_walk(t, task, call->row->dirfd, call->row->path);
	saw(t, EV_PROBE, call->first);
	return AFTER_WANTS_EXIT;
}

void make_leave(struct tracer *t, struct task *task, int64_t result)
{
	struct pending *call = &task->pending;
	unsigned kind = call->row->param;

	if (result < 0)
		return;
	if (!place(t, task, &call->first, call->row->dirfd, call->row->path))
		return;
	struct stat status;
	confirm(t, task, call->first.what == FOUND_ABSENT && is_there(t, call->first, true, &status));
	name_changed(t, call->first);
	if (kind == EV_MKNOD && ((call->flags & S_IFMT) == S_IFREG || (call->flags & S_IFMT) == 0))
		kind = EV_CREATE;
	out_did(t->out, kind, call->first.path);
}

enum after remove_enter(struct tracer *t, struct task *task)
{
	struct pending *call = &task->pending;
	bool folder = call->row->param == EV_LIST || (call->row->flags >= 0 && (call->flags & AT_REMOVEDIR));

	call->first = name_walk(t, task, call->row->dirfd, call->row->path);
	saw(t, EV_PROBE, call->first);
	if (folder && call->first.type == S_IFDIR)
		saw(t, EV_LIST, call->first);
	return AFTER_WANTS_EXIT;
}

void remove_leave(struct tracer *t, struct task *task, int64_t result)
{
	struct pending *call = &task->pending;

	if (result < 0 || !place(t, task, &call->first, call->row->dirfd, call->row->path))
		return;
	struct stat status;
	confirm(t, task, call->first.what == FOUND_OBJECT && !is_there(t, call->first, false, &status));
	name_changed(t, call->first);
	out_did(t->out, EV_REMOVE, call->first.path);
}

/* An object that goes on under another name: all of it is an input. */
static void saw_moving(struct tracer *t, struct found found)
{
	switch (found.type) {
	case S_IFDIR:
		saw(t, EV_PROBE, found);
		return;
	case S_IFLNK:
		saw(t, EV_LINK, found);
		break;
	case S_IFREG:
		saw(t, EV_READ, found);
		break;
	default:
		break;
	}
	saw(t, EV_STAT, found);
}

enum after rename_enter(struct tracer *t, struct task *task)
{
	struct pending *call = &task->pending;

	call->first = name_walk(t, task, call->row->dirfd, call->row->path);
	call->second = name_walk(t, task, call->row->dirfd2, call->row->path2);
	saw_moving(t, call->first);
	if (call->row->flags >= 0 && (call->flags & RENAME_EXCHANGE))
		saw_moving(t, call->second);
	saw(t, EV_PROBE, call->second);
	if (call->second.type == S_IFDIR)
		saw(t, EV_LIST, call->second);
	return AFTER_WANTS_EXIT;
}

/* Two names of one file stay both, and that is a success (rename(2)). */
static bool was_renamed(struct tracer *t, const struct pending *call, bool exchange)
{
	struct stat source = { 0 }, target = { 0 };
	bool left = is_there(t, call->first, exchange, &source);

	if (!is_there(t, call->second, true, &target))
		return false;
	return exchange ? left : !left || (source.st_ino == target.st_ino && source.st_dev == target.st_dev);
}

void rename_leave(struct tracer *t, struct task *task, int64_t result)
{
	struct pending *call = &task->pending;
	bool exchange = call->row->flags >= 0 && (call->flags & RENAME_EXCHANGE);

	if (result < 0)
		return;
	if (!place(t, task, &call->first, call->row->dirfd, call->row->path) ||
	    !place(t, task, &call->second, call->row->dirfd2, call->row->path2))
		return;
	if (call->row->flags >= 0 && (call->flags & RENAME_WHITEOUT))
		incomplete(t, "unmodelled", "renameat2(RENAME_WHITEOUT)");
	confirm(t, task, call->first.what == FOUND_OBJECT && was_renamed(t, call, exchange));
	name_changed(t, call->first);
	name_changed(t, call->second);
	out_rename(t->out, call->first.path, call->second.path, exchange);
	if (exchange || call->first.type == S_IFDIR)
		out_forget(t->out);
}

enum after link_enter(struct tracer *t, struct task *task)
{
	struct pending *call = &task->pending;

	/* The flags and the empty path concern the source only. */
	call->first = argument_walk(t, task, call->row->dirfd, call->row->path);
	saw_moving(t, call->first);
	call->second = name_walk(t, task, call->row->dirfd2, call->row->path2);
	saw(t, EV_PROBE, call->second);
	return AFTER_WANTS_EXIT;
}

void link_leave(struct tracer *t, struct task *task, int64_t result)
{
	struct pending *call = &task->pending;

	if (result < 0 || !place(t, task, &call->second, call->row->dirfd2, call->row->path2))
		return;
	struct stat status;
	confirm(t, task, call->second.what == FOUND_ABSENT && is_there(t, call->second, true, &status));
	name_changed(t, call->second);
	if (call->first.what == FOUND_OBJECT)
		out_hardlink(t->out, call->first.path, call->second.path);
	else
		out_did(t->out, EV_CREATE, call->second.path); /* an O_TMPFILE gets its name */
}

enum after truncate_enter(struct tracer *t, struct task *task)
{
	struct pending *call = &task->pending;

	call->first = argument_walk(t, task, call->row->dirfd, call->row->path);
	saw(t, EV_PROBE, call->first);
	return AFTER_WANTS_EXIT;
}

void truncate_leave(struct tracer *t, struct task *task, int64_t result)
{
	struct pending *call = &task->pending;
	bool whole = call->args[1] == 0;

	if (result < 0 || !place(t, task, &call->first, call->row->dirfd, call->row->path))
		return;
	if (!whole)
		out_saw(t->out, EV_READ, call->first.path);
	out_write(t->out, call->first.path, whole);
}
