/* The tasks of the traced tree, by thread id, each with the call it is in.
 *
 * Knows ids and what a pending call needs to remember. Knows nothing of ptrace. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct call_row;
struct exec_call;

/* What a name led to. */
enum found_what {
	FOUND_NOTHING, /* the lookup failed before its last component, or could not be made */
	FOUND_ABSENT,  /* only the last component is missing: `path` is where it would be */
	FOUND_OBJECT,  /* `path` and `type` */
	FOUND_NAMELESS /* an object without a name in the tree: pipe, socket, memfd, deleted file */
};

struct found {
	enum found_what what;
	mode_t type; /* S_IFMT bits of an object */
	bool sure;   /* whoever looks finds the same: nothing on the way changes unseen, or is closed to anybody */
	uint32_t path;
};

/* What tasks that share their memory have in common. */
struct memory {
	unsigned users;
};

/* A call between its entry and its exit. */
struct pending {
	const struct call_row *row; /* NULL: none */
	uint64_t args[6];
	uint64_t flags;
	bool walked;
	bool unread; /* an argument could not be read */
	bool changes, opening; /* order.c */
	struct found first, second;
	uint32_t given; /* the path as the caller wrote it, interned, where a decoder puts the walk off */
	struct exec_call *exec; /* owned */
};

struct task {
	pid_t tid;
	pid_t ns_tid, ns_tgid; /* as inside; 0: not looked up yet */
	struct pending pending;
	struct memory *memory; /* NULL: not known yet */
	bool shares_folder;    /* CLONE_FS: another task may change its working folder */
	uint32_t cwd, cwd_generation; /* its working folder, good for that generation of names */
	uint32_t cwd_moves;	      /* and, when it is shared, as long as nobody moved */
	bool moving;		      /* in a chdir(2) that may move others as well */
	struct own_folder {
		uint32_t path;
		bool by_dot, by_name; /* how it was spelled; neither: nothing is put off */
		bool searches;        /* the look belonged to a search of PATH */
	} own_folder;
	struct look {
		uint32_t path; /* as written, made absolute */
		unsigned kind; /* the event that tells of it; 0: none, or the kernel is done with it */
		bool walked, follow;
	} look;	       /* of a call without an exit stop */
	bool divert;	   /* its notification is to become a stop: notify.h */
	bool diverted;	   /* it makes its call again, for a stop, */
	uint64_t argument; /* and this is what its sixth argument was */
	const struct call_row *began; /* an open that may wait, or that a signal has ended: no notification was taken away */
	bool waits;    /* at its entry, for another task's call to end */
	bool held;     /* on T's CPU: affinity.h */
	bool let_go;   /* it was, and has not stopped since */
	bool survivor; /* outlived the main process */
	pid_t tgid;    /* of a survivor */
	char name[17]; /* of a survivor */
};

struct tasks {
	struct task **slots; /* open addressing by tid */
	uint32_t mask, used; /* `used` counts tombstones */
	uint32_t count;
};

int tasks_init(struct tasks *tasks);
void tasks_free(struct tasks *tasks);
struct task *tasks_find(const struct tasks *tasks, pid_t tid);
/* Finds or adds. */
struct task *tasks_get(struct tasks *tasks, pid_t tid);
void tasks_remove(struct tasks *tasks, pid_t tid);
/* exec from a thread that was not the leader: `from` goes on under the id `to`, whose own task is gone. */
struct task *tasks_rename(struct tasks *tasks, pid_t from, pid_t to);
void task_drop_pending(struct task *task);
/* It has its memory for itself: it was forked, or became another program. */
void task_new_memory(struct task *task);
void task_share_memory(struct task *task, const struct task *with);
