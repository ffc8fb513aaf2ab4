/* chmod, chown, utimes, setxattr and their relatives, by name and by descriptor. */
#include "decode.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

enum after attr_enter(struct tracer *t, struct task *task)
{
	struct pending *call = &task->pending;

	call->first = argument_walk(t, task, call->row->dirfd, call->row->path);
	if (call->first.what == FOUND_OBJECT)
		out_saw(t->out, EV_PROBE, call->first.path);
	return AFTER_WANTS_EXIT;
}

/* utimensat may set the time of access alone, which is in no key: the time of change stays what it was. */
static bool leaves_mtime(struct tracer *t, struct task *task)
{
	const struct pending *call = &task->pending;
	struct timespec times[2];

	return call->row->param == META_TIMES && strcmp(call->row->name, "utimensat") == 0 && call->args[2] != 0 &&
	       guest_read(t, task, call->args[2], times, sizeof times) == sizeof times && times[1].tv_nsec == UTIME_OMIT;
}

/* The access ACL holds the bits of the mode, and setting it sets them. */
static unsigned what_is_set(struct tracer *t, struct task *task)
{
	static const char acl[] = "system.posix_acl_access";
	const struct pending *call = &task->pending;
	char name[sizeof acl];
	int at = call->row->flags >= 0 ? 3 : 1; /* setxattrat has flags before the name */

	if (leaves_mtime(t, task))
		return 0;
	if (call->row->param == META_XATTR && guest_read(t, task, call->args[at], name, sizeof name) == sizeof name &&
	    memcmp(name, acl, sizeof acl) == 0)
		return META_XATTR | META_MODE;
	return call->row->param;
}

/* Who may search a folder is a part of what walks find. */
static void searching_changed(struct tracer *t, const struct pending *call)
{
	if (call->row->param == META_MODE || call->row->param == META_OWNER)
		name_changed(t, call->first);
}

/* An attribute that can't be removed is not there, and one that can't be made is: whoever fails has looked (setxattr(2)).
 * To set one, the overlay copies the object up first, and leaves the copy. */
static void failure_tells(struct tracer *t, const struct pending *call, int64_t result)
{
	if (result >= 0 || call->row->param != META_XATTR || call->first.what != FOUND_OBJECT)
		return;
	out_saw(t->out, EV_XATTR_READ, call->first.path);
	if ((result == -ENODATA || result == -EEXIST) && !strstr(call->row->name, "remove"))
		out_meta(t->out, call->first.path, 0);
}

void attr_leave(struct tracer *t, struct task *task, int64_t result)
{
	struct pending *call = &task->pending;

	searching_changed(t, call);
	failure_tells(t, call, result);
	if (result >= 0 && call->first.what == FOUND_OBJECT)
		out_meta(t->out, call->first.path, what_is_set(t, task));
	else if (result >= 0 && call->first.what != FOUND_NAMELESS)
		incomplete(t, "walk_failed", call->row->name);
}

enum after attr_fd_enter(struct tracer *t, struct task *task)
{
	struct pending *call = &task->pending;

	call->first = walk_fd(t, task, (int)(uint32_t)call->args[call->row->path]);
	if (call->first.what == FOUND_OBJECT)
		out_saw(t->out, EV_PROBE, call->first.path);
	return AFTER_WANTS_EXIT;
}

void attr_fd_leave(struct tracer *t, struct task *task, int64_t result)
{
	struct pending *call = &task->pending;

	searching_changed(t, call);
	failure_tells(t, call, result);
	if (result >= 0 && call->first.what == FOUND_OBJECT)
		out_meta(t->out, call->first.path, what_is_set(t, task));
}
