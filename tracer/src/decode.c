/* The index of calls, the dispatch to decoders, and what they share. */
#include "decode.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cleanup.h"

static const struct call_row call_index[] = {
#include "call_index_generated.h"
};

struct decoder_halves {
	enum after (*enter)(struct tracer *t, struct task *task);
	void (*leave)(struct tracer *t, struct task *task, int64_t result);
	bool lasts; /* it may change the tree */
};

static enum after credentials_enter(struct tracer *t, struct task *task)
{
	(void)t;
	(void)task;
	return AFTER_WANTS_EXIT;
}

/* Whoever sets the mask also learns what it was. */
static enum after umask_enter(struct tracer *t, struct task *task)
{
	(void)task;
	out_umask(t->out);
	return AFTER_CONTINUE;
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
	[DECODE_EXEC] = { exec_enter, exec_leave, false },
	[DECODE_CONNECT] = { connect_enter, connect_leave, false },
	[DECODE_BIND] = { bind_enter, bind_leave, true },
	[DECODE_SENDTO] = { sendto_enter, NULL, false },
	[DECODE_SENDMSG] = { sendmsg_enter, NULL, false },
	[DECODE_SENDMMSG] = { sendmmsg_enter, NULL, false },
	[DECODE_SHARE] = { share_enter, NULL, false },
	[DECODE_AFFINITY_GET] = { affinity_get_enter, NULL, false },
	[DECODE_AFFINITY_SET] = { affinity_set_enter, NULL, false },
	[DECODE_CREDENTIALS] = { credentials_enter, credentials_leave, false },
	[DECODE_UMASK] = { umask_enter, NULL, false },
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

/* What tells of a call that was walked at its entry and is let go. */
static unsigned look_kind(const struct task *task)
{
	if (is_open(task))
		return task->pending.flags & O_PATH ? EV_PROBE : EV_READ;
	return task->pending.row->decoder == DECODE_LOOK ? task->pending.row->param : EV_PROBE;
}

/* Whether a change may lead names that were walked before to other objects. What a name leads to after it was made or
 * removed is the action's own, or nothing. */
static bool turns_ways(const struct pending *call)
{
	bool moves_way = call->first.type == S_IFLNK || call->first.type == S_IFDIR;

	switch ((int)call->row->decoder) {
	case DECODE_MAKE:
		return call->row->param == EV_SYMLINK;
	case DECODE_RENAME:
		return moves_way || call->second.type == S_IFLNK || call->second.type == S_IFDIR;
	case DECODE_LINK:
		return moves_way;
	default:
		return false;
	}
}

void decode_looked(struct tracer *t, struct task *task)
{
	const struct task *changer = t->order.exclusive;

	folder_moved(t, task);
	if (task->look.kind != 0 && changer != NULL && changer != task && turns_ways(&changer->pending)) {
		if (t->late_count == t->late_capacity) {
			t->late_capacity = t->late_capacity ? t->late_capacity * 2 : 64;
			t->late = realloc(t->late, t->late_capacity * sizeof *t->late);
			if (t->late == NULL)
				abort();
		}
		t->late[t->late_count++] = task->look;
	}
	task->look.kind = 0;
}

static void report_again(struct tracer *t, struct task *task, struct look look)
{
	const struct intern *paths = out_paths(t->out);
	struct walk_from from = { .dirfd = AT_FDCWD, .follow = look.follow };
	struct look own = task->look;
	struct found found = walk_at(t, task, from, intern_bytes(paths, look.path), intern_len(paths, look.path));

	task->look = own;
	if (found.what != FOUND_OBJECT)
		return;
	if ((look.kind == EV_READ && found.type != S_IFREG) || (look.kind == EV_LINK && found.type != S_IFLNK))
		look.kind = EV_PROBE;
	out_saw(t->out, look.kind, found.path);
}

/* Other tasks were let go after a walk, and the kernel's own may have come only when the ways had changed: where their
 * names lead now is reported, too. */
static void look_again(struct tracer *t, struct task *changer)
{
	for (uint32_t at = 0; at <= t->tasks.mask; at++) {
		struct task *task = t->tasks.slots[at];
		if (task != NULL && task->tid > 0 && task != changer && task->look.kind != 0)
			report_again(t, task, task->look);
	}
	for (size_t i = 0; i < t->late_count; i++)
		report_again(t, changer, t->late[i]);
}

enum after decode_enter(struct tracer *t, struct task *task)
{
	const struct decoder_halves *decoder = &decoders[task->pending.row->decoder];

	if (task->pending.row->decoder != DECODE_LOOK)
		decode_settle(t, task);
	if (decoder->enter == NULL)
		return AFTER_CONTINUE;
	if (is_open(task) && !open_prepare(t, task)) {
		task->pending.unread = true;
		return AFTER_WANTS_EXIT;
	}
	if (order_waits(t, task))
		return AFTER_WAITS;
	order_before(t, task);
	task->look.walked = false;
	enum after after = decoder->enter(t, task);
	if (after == AFTER_CONTINUE && task->look.walked)
		task->look.kind = look_kind(task);
	if (task->pending.unread && is_open(task))
		return AFTER_WANTS_EXIT;
	if (after == AFTER_WANTS_EXIT)
		order_begin(t, task);
	return task->pending.unread ? AFTER_WANTS_EXIT : after;
}

/* An argument could not be read at the entry: then the kernel can't read it either, and the call does nothing. But another
 * thread may have mapped the page in between, or the memory may be closed to T. */
static bool went_on(int64_t result)
{
	switch (result) {
	case -EFAULT:
	case -EINVAL:
	case -EBADF:
	case -EPERM:
	case -ENOSYS:
	case -ENOTSOCK:
	case -EOPNOTSUPP:
	case -EAFNOSUPPORT:
	case -E2BIG:
	case -ERANGE:
	case -ENOMEM:
	case -EINTR:
		return false;
	default:
		return true;
	}
}

void decode_leave(struct tracer *t, struct task *task, int64_t result)
{
	if (task->pending.unread && went_on(result)) {
		incomplete(t, "unreadable_argument", task->pending.row->name);
		names_changed(t);
	}
	if (task->pending.unread && is_open(task))
		return; /* without its arguments there is nothing to tell */
	if (decoders[task->pending.row->decoder].leave != NULL)
		decoders[task->pending.row->decoder].leave(t, task, result);
	if (result >= 0 && turns_ways(&task->pending))
		look_again(t, task);
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

	if (!decoders[call->row->decoder].lasts || call->unread)
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
	char name[PATH_MAX] not_zeroed;
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

enum spelling { NOT_OWN, BY_DOT, BY_NAME };

/* How a stat(2) that follows symlinks names the caller's own working directory. */
static enum spelling own_folder_spelled(struct tracer *t, struct task *task, struct found found)
{
	const struct pending *call = &task->pending;
	char first[2] = "";

	if (found.type != S_IFDIR || call->row->nofollow || (call->flags & AT_SYMLINK_NOFOLLOW) || is_statx(call))
		return NOT_OWN;
	if (out_was_seen(t->out, EV_STAT, found.path)) /* that says more */
		return NOT_OWN;
	if (guest_read(t, task, call->args[call->row->path], first, 2) < 2)
		return NOT_OWN;
	if (first[0] != '/' && memcmp(first, ".", 2) != 0)
		return NOT_OWN;
	struct found cwd = walk_fd_name(t, task, AT_FDCWD);
	if (cwd.what != FOUND_OBJECT || cwd.path != found.path)
		return NOT_OWN;
	return first[0] == '/' ? BY_NAME : BY_DOT;
}

static void settle(struct tracer *t, struct task *task)
{
	struct own_folder *own = &task->own_folder;

	if (!own->by_dot && !own->by_name)
		return;
	out_saw_stat(t->out, own->path, own->searches || (own->by_dot && own->by_name));
	memset(own, 0, sizeof *own);
	t->put_off--;
}

void decode_settle(struct tracer *t, struct task *task)
{
	if (task != NULL) {
		settle(t, task);
		return;
	}
	for (uint32_t at = 0; t->put_off > 0 && at <= t->tasks.mask; at++)
		if (t->tasks.slots[at] != NULL && t->tasks.slots[at]->tid > 0)
			settle(t, t->tasks.slots[at]);
}

/* Shells and gcc look at their folder by $PWD and by "." to see whether the two are one, and at nothing but the inode.
 * Every shell would else depend on the time of its folder. Only such a pair is taken for this: a look at one of the two
 * names alone, as by os.stat(".") or `test . -nt file`, is one at all of it. So the first of a pair is told with the call
 * that follows.
 *
 * bash also looks at "." alone before each search of PATH, to tell whether one of its folders is this one, again by the
 * inode (findcmd.c): then the call that follows is a stat(2) of a program by its absolute path. `test . -nt /a/file` makes
 * the same two calls, and is taken for it. */
static bool is_search_of_path(struct tracer *t, struct task *task, struct found found)
{
	const struct pending *call = &task->pending;
	char first = '\0';

	if (!task->own_folder.by_dot || call->row->param != EV_STAT || call->row->nofollow || is_statx(call))
		return false;
	if (found.what == FOUND_OBJECT && found.type == S_IFDIR)
		return false;
	return guest_read(t, task, call->args[call->row->path], &first, 1) == 1 && first == '/';
}

static void look_at_own_folder(struct tracer *t, struct task *task, uint32_t path, enum spelling spelled)
{
	struct own_folder *own = &task->own_folder;

	if (!own->by_dot && !own->by_name)
		t->put_off++;
	own->path = path;
	own->by_dot |= spelled == BY_DOT;
	own->by_name |= spelled == BY_NAME;
	if (own->by_dot && own->by_name)
		settle(t, task);
}

static void report_look(struct tracer *t, struct task *task, struct found found)
{
	unsigned kind = task->pending.row->param;
	enum spelling spelled = NOT_OWN;

	if (found.what != FOUND_OBJECT)
		return;
	if (kind == EV_STAT && wants_little(&task->pending))
		out_saw(t->out, EV_PROBE, found.path);
	else if (kind == EV_STAT && (spelled = own_folder_spelled(t, task, found)) != NOT_OWN)
		look_at_own_folder(t, task, found.path, spelled);
	else if (kind == EV_LINK && found.type != S_IFLNK)
		out_saw(t->out, EV_PROBE, found.path);
	else
		out_saw(t->out, kind, found.path);
}

enum after look_enter(struct tracer *t, struct task *task)
{
	struct found found = argument_walk(t, task, task->pending.row->dirfd, task->pending.row->path);

	/* Another object, or another kind of look, is not the second of a pair. */
	task->own_folder.searches = is_search_of_path(t, task, found);
	if (task->pending.row->param != EV_STAT || found.path != task->own_folder.path)
		settle(t, task);
	report_look(t, task, found);
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
	struct found found = walk_fd(t, task, fd);

	if (found.what == FOUND_OBJECT && found.type == S_IFDIR)
		out_saw(t->out, EV_LIST, found.path);
	return AFTER_CONTINUE;
}

/* Whether a descriptor was opened for reading alone: what is mapped of it can then never be made writable (mmap(2)). */
static bool only_read(struct tracer *t, const struct task *task, int fd)
{
	char name[48], text[256];
	unsigned flags = O_RDWR;

	snprintf(name, sizeof name, "%d/fdinfo/%d", task->tid, fd);
	cleanup_fd int info = openat(t->proc_fd, name, O_RDONLY | O_CLOEXEC);
	ssize_t len = info < 0 ? -1 : read(info, text, sizeof text - 1);
	if (len <= 0)
		return false;
	text[len] = '\0';
	const char *line = strstr(text, "flags:");
	return line != NULL && sscanf(line, "flags: %o", &flags) == 1 && (flags & O_ACCMODE) == O_RDONLY;
}

/* mmap(MAP_SHARED) and shmat: memory that another task may write to. io_setup: that the kernel may. */
enum after share_enter(struct tracer *t, struct task *task)
{
	const uint64_t *args = task->pending.args;
	bool file = strcmp(task->pending.row->name, "mmap") == 0 && !(args[3] & MAP_ANONYMOUS);

	if (!t->shared_mappings && !(file && !(args[2] & PROT_WRITE) && only_read(t, task, (int)(uint32_t)args[4])))
		t->shared_mappings = true;
	return AFTER_CONTINUE;
}

void credentials_leave(struct tracer *t, struct task *task, int64_t result)
{
	if (result >= 0)
		out_credentials(t->out, task->tid);
}
