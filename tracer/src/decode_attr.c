/* chmod, chown, utimes, setxattr and their relatives, by name and by descriptor. */
#include "decode.h"

enum after attr_enter(struct tracer *t, struct task *task)
{
	struct pending *call = &task->pending;

	call->first = argument_walk(t, task, call->row->dirfd, call->row->path);
	if (call->first.what == FOUND_OBJECT)
		out_saw(t->out, EV_PROBE, call->first.path);
	return AFTER_WANTS_EXIT;
}

void attr_leave(struct tracer *t, struct task *task, int64_t result)
{
	struct pending *call = &task->pending;

	if (result >= 0 && call->first.what == FOUND_OBJECT)
		out_meta(t->out, call->first.path, call->row->param);
	else if (result >= 0 && call->first.what != FOUND_NAMELESS)
		incomplete(t, "walk_failed", call->row->name);
}

enum after attr_fd_enter(struct tracer *t, struct task *task)
{
	struct pending *call = &task->pending;

	call->first = walk_fd_name(t, task, (int)(uint32_t)call->args[call->row->path]);
	if (call->first.what == FOUND_OBJECT)
		out_saw(t->out, EV_PROBE, call->first.path);
	return AFTER_WANTS_EXIT;
}

void attr_fd_leave(struct tracer *t, struct task *task, int64_t result)
{
	struct pending *call = &task->pending;

	if (result >= 0 && call->first.what == FOUND_OBJECT)
		out_meta(t->out, call->first.path, call->row->param);
}
