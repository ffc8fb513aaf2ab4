/* From system calls to facts: what the trace loop, the decoders and the walk share.
 *
 * A decoder has two halves. `enter` runs at the seccomp stop, when nothing has happened yet: it reads the arguments,
 * walks the names and reports observations. `leave` runs at the exit stop with the result: it reports what was done,
 * and what a successful open really opened. A call that the kernel restarts enters again; observations may repeat. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "affinity.h"
#include "counts.h"
#include "order.h"
#include "out.h"
#include "syscalls_generated.h"
#include "task.h"

struct notify;

struct call_row {
	const char *name; /* NULL: no such call */
	enum decoder decoder;
	bool needs_exit, nofollow;
	int8_t dirfd, path, flags, dirfd2, path2; /* argument numbers, -1: none */
	uint8_t param;                            /* an event kind, or a bit of META */
};

/* NULL for a number that the table does not know. */
const struct call_row *call_find(uint64_t number);

/* What the walk remembers by the id of a lexical path. */
struct memo {
	uint32_t folder_generation; /* a physical path known to be a folder then */
	bool closed;		    /* which not everybody may search */
	bool named;		    /* a name of the guest's tree, as was checked once */
	uint32_t version;	    /* of this one name: how often what it is changed */
	mode_t type;		    /* of what has this name, good for the two below */
	uint32_t type_generation, type_version;
	struct answer {
		uint32_t generation;	/* it was found then */
		uint32_t end, version;	/* where the walk ended, and which version that was of */
		struct found found;
	} answer[2]; /* by `follow` */
};

struct tracer {
	struct out *out;
	int proc_fd; /* the host's /proc; T itself stands in the guest's root */
	struct tasks tasks;
	struct memo *memos;
	uint32_t memo_capacity;
	uint32_t generation; /* of names; starts at 1 */
	unsigned moving; /* tasks that are `moving` */
	uint32_t moves;	 /* how often one began to */
	bool shared_mappings; /* a task may write into the memory of another one */
	struct counts counts;
	struct notify *notified; /* whose call is decoded just now, if it came so */
	struct order order;
	struct affinity affinity;
	struct look *late; /* looks that ended while a change was under way that may turn their way */
	size_t late_count, late_capacity;
	unsigned put_off; /* tasks whose look at their own folder is not reported yet */
};

enum after {
	AFTER_CONTINUE,
	AFTER_WANTS_EXIT,
	AFTER_WAITS, /* not decoded yet: again when order_next() says so */
};

enum after decode_enter(struct tracer *t, struct task *task);
void decode_leave(struct tracer *t, struct task *task, int64_t result);
/* The task died inside the call: what it did is unknown. */
void decode_lost(struct tracer *t, struct task *task);
/* What the task, or with `task` NULL any, has seen and not told yet. Before a change, and when it ends. */
void decode_settle(struct tracer *t, struct task *task);
/* The task stops: the kernel is done with what it was let go with. */
void decode_looked(struct tracer *t, struct task *task);
/* The task is about to change its working folder, after this stop. */
void folder_moves(struct tracer *t, struct task *task);
/* It has done so, or is gone. */
void folder_moved(struct tracer *t, struct task *task);
/* PTRACE_EVENT_EXEC: the program runs. */
void decode_exec_done(struct tracer *t, struct task *task);
void exec_call_free(struct exec_call *exec);

/* A name-changing call succeeded: forget what walks found. */
void names_changed(struct tracer *t);
/* The same when what changed is one name, and what it was (an object of this type, 0: not known) is no way to others. */
void name_changed(struct tracer *t, struct found was);
void incomplete(struct tracer *t, const char *reason, const char *detail);

/* False: it was killed at its stop (trace.c). */
bool still_stopped(const struct tracer *t, const struct task *task);

/* walk.c */
struct walk_from {
	int dirfd;        /* AT_FDCWD: the working directory */
	bool follow;      /* a symlink in the last place is followed */
	bool in_root;     /* openat2's RESOLVE_IN_ROOT */
};
/* Where `path` leads `task`; reports LINK, MISSED and, for what is no folder or can't be searched, PROBE. */
struct found walk_at(struct tracer *t, struct task *task, struct walk_from from, const char *path, size_t len);
/* The object of a descriptor (AT_FDCWD: the working directory). Reports nothing. */
struct found walk_fd(struct tracer *t, struct task *task, int fd);
/* The same without asking for its type: `type` may be 0. */
struct found walk_fd_name(struct tracer *t, struct task *task, int fd);
mode_t walk_fd_type(struct tracer *t, struct task *task, int fd);
void walk_free(struct tracer *t);

/* args.c */
/* Bytes of the guest's memory; how many could be read (fewer at an unmapped page), or -errno. */
ssize_t guest_read(struct tracer *t, const struct task *task, uint64_t address, void *into, size_t len);
/* A path: its length, -ENAMETOOLONG without a NUL in PATH_MAX bytes, -EFAULT as the kernel should say, too: the call is
 * marked as `unread`, and its outcome looked at. `buffer` has room for PATH_MAX bytes. */
ssize_t guest_path(struct tracer *t, struct task *task, uint64_t address, char *buffer);
/* readlink of /proc/TID/NAME on the host, NUL-terminated: the length or -errno. */
ssize_t proc_readlink(struct tracer *t, const struct task *task, const char *name, char *buffer, size_t size);

static inline int dirfd_argument(int8_t which, const struct pending *call)
{
	/* The kernel looks at 32 bits only: 0xffffff9c is AT_FDCWD as well. */
	return which < 0 ? -100 : (int)(uint32_t)call->args[which];
}

/* The path argument `which` walked, with the flags AT_SYMLINK_(NO)FOLLOW and AT_EMPTY_PATH of the row's flags
 * argument; FOUND_NOTHING also when it can't be read. */
struct found argument_walk(struct tracer *t, struct task *task, int8_t dirfd, int8_t path);

/* Decoders. */
enum after look_enter(struct tracer *t, struct task *task);
enum after look_fd_enter(struct tracer *t, struct task *task);
enum after list_enter(struct tracer *t, struct task *task);
bool open_prepare(struct tracer *t, struct task *task); /* fills in the flags */
bool open_may_change(const struct pending *call);
void open_report_early(struct tracer *t, struct task *task);
enum after open_enter(struct tracer *t, struct task *task);
void open_leave(struct tracer *t, struct task *task, int64_t result);
void open_lost(struct tracer *t, struct task *task);
enum after make_enter(struct tracer *t, struct task *task);
void make_leave(struct tracer *t, struct task *task, int64_t result);
enum after remove_enter(struct tracer *t, struct task *task);
void remove_leave(struct tracer *t, struct task *task, int64_t result);
enum after rename_enter(struct tracer *t, struct task *task);
void rename_leave(struct tracer *t, struct task *task, int64_t result);
enum after link_enter(struct tracer *t, struct task *task);
void link_leave(struct tracer *t, struct task *task, int64_t result);
enum after truncate_enter(struct tracer *t, struct task *task);
void truncate_leave(struct tracer *t, struct task *task, int64_t result);
enum after attr_enter(struct tracer *t, struct task *task);
void attr_leave(struct tracer *t, struct task *task, int64_t result);
enum after attr_fd_enter(struct tracer *t, struct task *task);
void attr_fd_leave(struct tracer *t, struct task *task, int64_t result);
enum after exec_enter(struct tracer *t, struct task *task);
void exec_leave(struct tracer *t, struct task *task, int64_t result);
enum after connect_enter(struct tracer *t, struct task *task);
void connect_leave(struct tracer *t, struct task *task, int64_t result);
enum after bind_enter(struct tracer *t, struct task *task);
void bind_leave(struct tracer *t, struct task *task, int64_t result);
enum after sendto_enter(struct tracer *t, struct task *task);
enum after sendmsg_enter(struct tracer *t, struct task *task);
enum after share_enter(struct tracer *t, struct task *task);
enum after affinity_get_enter(struct tracer *t, struct task *task);
enum after affinity_set_enter(struct tracer *t, struct task *task);
enum after sendmmsg_enter(struct tracer *t, struct task *task);
void credentials_leave(struct tracer *t, struct task *task, int64_t result);
