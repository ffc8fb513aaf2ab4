/* The physical walk: which object a name leads to, and what was looked at on the way.
 *
 * T stands in the guest's root (chroot), so the kernel resolves nothing outside of it, and takes one component at a
 * time because a single lookup would not say which symlinks it passed nor which component is missing. `..` is
 * physical: `at` never holds a symlink, so cutting its last component is right.
 *
 * Two things are remembered: physical folders, which are then passed without a system call, and answers by lexical
 * path. Both are good for one generation of names, which ends when a folder or a symlink moves or goes; an answer also
 * for one version of the place where the walk ended. What lies under /proc is never remembered: it changes unseen.
 * /proc/self is the *guest's*, and to T, outside its pid namespace, it does not exist: it is filled in by hand. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "decode.h"

enum {
	MOST_LINKS = 40, /* path_resolution(7) */
	ROOM = PATH_MAX * 3,
	SLACK = 24, /* a decimal id appended to a folder */
};

struct walk {
	struct tracer *t;
	struct task *task;
	bool follow;
	char at[ROOM]; /* physical, without a slash at its end: "" is the root */
	size_t at_len;
	size_t root_len; /* `..` goes no higher */
	char rest[ROOM];
	size_t rest_at, rest_len;
	int links;
	bool fleeting; /* passed something that changes unseen */
	bool closed;   /* or a folder that not everybody may search */
};

static struct found nothing(void)
{
	return (struct found){ .what = FOUND_NOTHING };
}

void names_changed(struct tracer *t)
{
	t->generation++;
}

static struct memo *memo(struct tracer *t, uint32_t id);

/* Folders and symlinks are the way to other names. Anything else, and a name that was not there, is the end of walks. */
void name_changed(struct tracer *t, struct found was)
{
	if (was.what == FOUND_ABSENT ||
	    (was.what == FOUND_OBJECT && was.type != 0 && was.type != S_IFDIR && was.type != S_IFLNK))
		memo(t, was.path)->version++;
	else
		names_changed(t);
}

void walk_free(struct tracer *t)
{
	free(t->memos);
	t->memos = NULL;
}

static struct memo *memo(struct tracer *t, uint32_t id)
{
	if (id >= t->memo_capacity) {
		uint32_t capacity = t->memo_capacity ? t->memo_capacity : 1024;
		while (capacity <= id)
			capacity *= 2;
		struct memo *grown = realloc(t->memos, capacity * sizeof *grown);
		if (grown == NULL)
			abort();
		memset(grown + t->memo_capacity, 0, (capacity - t->memo_capacity) * sizeof *grown);
		t->memos = grown;
		t->memo_capacity = capacity;
	}
	return &t->memos[id];
}

static bool in_proc(const char *path, size_t len)
{
	return len >= 5 && memcmp(path, "/proc", 5) == 0 && (len == 5 || path[5] == '/');
}

static uint32_t path_id(struct tracer *t, const char *path, size_t len)
{
	return len == 0 ? out_path(t->out, "/", 1) : out_path(t->out, path, len);
}

/* The ids of the task as it sees itself: the last column of NStgid and NSpid (proc_pid_status(5)). */
static bool own_ids(struct tracer *t, struct task *task)
{
	char name[32], text[4096];

	if (task->ns_tgid != 0)
		return true;
	snprintf(name, sizeof name, "%d/status", task->tid);
	cleanup_fd int fd = openat(t->proc_fd, name, O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (len <= 0)
		return false;
	text[len] = '\0';
	const char *keys[2] = { "\nNStgid:", "\nNSpid:" };
	pid_t ids[2] = { 0, 0 };
	for (int i = 0; i < 2; i++) {
		char *line = strstr(text, keys[i]);
		if (line == NULL)
			return false;
		for (char *next = strchr(line + 1, ':') + 1; *next == '\t' || *next == ' ';)
			ids[i] = (pid_t)strtol(next, &next, 10);
	}
	task->ns_tgid = ids[0];
	task->ns_tid = ids[1];
	return ids[0] > 0 && ids[1] > 0;
}

static void walk_error(struct walk *w, int error)
{
	char text[16];
	snprintf(text, sizeof text, "%d", error);
	incomplete(w->t, "walk_failed", text);
}

static void saw(struct walk *w, unsigned kind, size_t len)
{
	out_saw(w->t->out, kind, path_id(w->t, w->at, len));
}

/* Puts the target of a symlink before what is left. False: longer than any path. */
static bool prepend(struct walk *w, const char *target, size_t len)
{
	size_t left = w->rest_len - w->rest_at;

	if (len + 1 + left >= ROOM)
		return false;
	memmove(w->rest + len + 1, w->rest + w->rest_at, left);
	memcpy(w->rest, target, len);
	w->rest[len] = '/';
	w->rest_at = 0;
	w->rest_len = len + (left > 0 ? 1 + left : 0);
	if (target[0] == '/')
		w->at_len = w->root_len;
	return true;
}

/* /proc/self and /proc/thread-self, replaced by the folder they stand for. */
static bool is_own_proc(const struct walk *w, size_t parent)
{
	const char *name = w->at + parent + 1;
	size_t len = w->at_len - parent - 1;

	return parent == 5 && memcmp(w->at, "/proc", 5) == 0 &&
	       ((len == 4 && memcmp(name, "self", 4) == 0) || (len == 11 && memcmp(name, "thread-self", 11) == 0));
}

static bool enter_own_proc(struct walk *w)
{
	bool thread = w->at[6] == 't';

	w->fleeting = true;
	if (!own_ids(w->t, w->task))
		return false;
	int len = thread ? snprintf(w->at, ROOM, "/proc/%d/task/%d", w->task->ns_tgid, w->task->ns_tid)
			 : snprintf(w->at, ROOM, "/proc/%d", w->task->ns_tgid);
	w->at_len = (size_t)len;
	return true;
}

/* A link whose text is no path but what d_path() makes of an object: /proc/PID/{fd/N,cwd,root,exe}. */
static struct found follow_magic(struct walk *w, const char *target, size_t len, bool *on)
{
	struct stat object, named;

	*on = false;
	if (stat(w->at, &object) < 0)
		return nothing();
	if (target[0] != '/' || len >= ROOM - PATH_MAX)
		return (struct found){ .what = FOUND_NAMELESS, .type = object.st_mode & S_IFMT };
	if (lstat(target, &named) < 0 || named.st_ino != object.st_ino || named.st_dev != object.st_dev)
		return (struct found){ .what = FOUND_NAMELESS, .type = object.st_mode & S_IFMT };
	memcpy(w->at, target, len + 1);
	w->at_len = len == 1 ? 0 : len;
	*on = S_ISDIR(object.st_mode);
	return (struct found){.what = FOUND_OBJECT, .type = object.st_mode & S_IFMT, .path = path_id(w->t, w->at, w->at_len)};
}

enum step { STEP_ON, STEP_DONE };

/* `at` is a symlink that is to be followed; its parent ends at `parent`. */
static enum step follow_link(struct walk *w, size_t parent, bool last, struct found *found)
{
	char target[PATH_MAX] not_zeroed;

	*found = nothing();
	if (++w->links > MOST_LINKS)
		return STEP_DONE;
	saw(w, EV_LINK, w->at_len);
	ssize_t len = readlink(w->at, target, sizeof target - 1);
	if (len <= 0)
		return STEP_DONE;
	target[len] = '\0';
	if (in_proc(w->at, w->at_len) && parent > 5) {
		bool on;
		w->fleeting = true;
		*found = follow_magic(w, target, (size_t)len, &on);
		if (!last && !on && found->what == FOUND_OBJECT)
			saw(w, EV_PROBE, w->at_len);
		if (!last && !on)
			*found = nothing();
		return on ? STEP_ON : STEP_DONE;
	}
	w->at_len = parent;
	if (prepend(w, target, (size_t)len))
		return STEP_ON;
	walk_error(w, ENAMETOOLONG);
	return STEP_DONE;
}

/* `at` could not be looked up. */
static struct found missed(struct walk *w, int error, size_t parent, bool last)
{
	switch (error) {
	case ENOENT:
		saw(w, EV_MISSED, w->at_len);
		return last ? (struct found){.what = FOUND_ABSENT, .path = path_id(w->t, w->at, w->at_len)} : nothing();
	case ENOTDIR: /* another task has just replaced the folder */
	case EACCES:  /* nor may the guest, which has no more rights than T */
		saw(w, EV_PROBE, parent);
		return nothing();
	case ENAMETOOLONG:
		if (w->at_len - parent - 1 > NAME_MAX) {
			saw(w, EV_PROBE, parent);
			return nothing();
		}
		break;
	default:
		break;
	}
	walk_error(w, error);
	return nothing();
}

struct component {
	const char *name;
	size_t len;
	bool last;   /* nothing but slashes follow */
	bool folder; /* a slash follows, so it must be a folder */
};

/* Takes the next component off `rest`; false at its end. */
static bool next_component(struct walk *w, struct component *component)
{
	while (w->rest_at < w->rest_len && w->rest[w->rest_at] == '/')
		w->rest_at++;
	component->name = w->rest + w->rest_at;
	while (w->rest_at < w->rest_len && w->rest[w->rest_at] != '/')
		w->rest_at++;
	component->len = (size_t)(w->rest + w->rest_at - component->name);
	component->folder = w->rest_at < w->rest_len;
	component->last = true;
	for (size_t i = w->rest_at; i < w->rest_len && component->last; i++)
		component->last = w->rest[i] == '/';
	return component->len > 0;
}

static bool append(struct walk *w, const struct component *component)
{
	if (w->at_len + 1 + component->len + SLACK >= ROOM)
		return false;
	w->at[w->at_len++] = '/';
	memcpy(w->at + w->at_len, component->name, component->len);
	w->at_len += component->len;
	w->at[w->at_len] = '\0';
	return true;
}

static bool ends_as_deleted(const char *text, size_t len)
{
	static const char suffix[] = " (deleted)";
	size_t suffix_len = sizeof suffix - 1;

	return len >= suffix_len && memcmp(text + len - suffix_len, suffix, suffix_len) == 0;
}

static bool knows_type(const struct tracer *t, const struct memo *known)
{
	return known->type_generation == t->generation && known->type_version == known->version;
}

/* The guest's tree has an object of this type by this name. */
static void remember_type(struct tracer *t, uint32_t id, mode_t type)
{
	const struct intern *paths = out_paths(t->out);
	struct memo *known = memo(t, id);

	if (in_proc(intern_bytes(paths, id), intern_len(paths, id)) ||
	    ends_as_deleted(intern_bytes(paths, id), intern_len(paths, id)))
		return;
	known->named = true;
	known->type = type & S_IFMT;
	known->type_generation = t->generation;
	known->type_version = known->version;
}

static void remember_folder(struct tracer *t, uint32_t id, mode_t mode)
{
	struct memo *folder = memo(t, id);

	folder->folder_generation = t->generation;
	folder->closed = !(mode & S_IXOTH);
	remember_type(t, id, mode);
}

/* `at`, whose parent ends at `parent`, is a new place: what is there? */
static enum step look(struct walk *w, const struct component *component, size_t parent, struct found *found)
{
	bool through = !component->last || component->folder || w->follow;
	uint32_t id = out_path(w->t->out, w->at, w->at_len);
	struct stat st;

	if (memo(w->t, id)->folder_generation == w->t->generation) {
		w->closed |= memo(w->t, id)->closed;
		return STEP_ON;
	}
	if (is_own_proc(w, parent)) {
		*found = (struct found){.what = FOUND_OBJECT, .type = S_IFLNK, .path = id};
		if (through && enter_own_proc(w))
			return STEP_ON;
		if (through)
			*found = nothing();
		return STEP_DONE;
	}
	if (lstat(w->at, &st) < 0) {
		*found = missed(w, errno, parent, component->last);
		return STEP_DONE;
	}
	if (S_ISLNK(st.st_mode) && through)
		return follow_link(w, parent, component->last, found);
	if (S_ISDIR(st.st_mode)) {
		if (!in_proc(w->at, w->at_len))
			remember_folder(w->t, id, st.st_mode);
		w->closed |= !(st.st_mode & S_IXOTH);
		return STEP_ON;
	}
	*found = (struct found){.what = FOUND_OBJECT, .type = st.st_mode & S_IFMT, .path = id};
	remember_type(w->t, id, st.st_mode);
	w->closed |= S_ISREG(st.st_mode) && !(st.st_mode & S_IROTH);
	if (!component->last || component->folder) {
		saw(w, EV_PROBE, w->at_len);
		*found = nothing();
	}
	return STEP_DONE;
}

/* One component. `found` is set with STEP_DONE. */
static enum step step(struct walk *w, struct found *found)
{
	struct component component;
	size_t parent = w->at_len;

	if (!next_component(w, &component)) {
		*found = (struct found){.what = FOUND_OBJECT, .type = S_IFDIR, .path = path_id(w->t, w->at, w->at_len)};
		return STEP_DONE;
	}
	if (component.len == 1 && component.name[0] == '.')
		return STEP_ON;
	if (component.len == 2 && memcmp(component.name, "..", 2) == 0) {
		if (w->at_len > w->root_len) /* it had to be there, and no path that is reported later says so */
			saw(w, EV_PROBE, w->at_len);
		while (w->at_len > w->root_len && w->at[--w->at_len] != '/')
			;
		return STEP_ON;
	}
	if (append(w, &component))
		return look(w, &component, parent, found);
	walk_error(w, ENAMETOOLONG);
	*found = nothing();
	return STEP_DONE;
}

enum { NAMED_SO, NAMED_OTHERWISE, NAMED_RACY };

/* Whether the object of a /proc link is what the guest finds under the link's text. It is not when the file was
 * deleted (the text then ends in " (deleted)", as a file may be called, too), and when the descriptor came from
 * outside of the guest's tree: its standard input, output and error. */
static int check_name(struct tracer *t, struct task *task, const char *link, const char *text, struct stat *object)
{
	char whole[64];
	struct stat there;

	snprintf(whole, sizeof whole, "%d/%s", task->tid, link);
	if (fstatat(t->proc_fd, whole, object, 0) < 0)
		return NAMED_OTHERWISE;
	if (lstat(text, &there) < 0)
		return errno == ENOENT || errno == ENOTDIR ? NAMED_RACY : NAMED_SO;
	return there.st_ino == object->st_ino && there.st_dev == object->st_dev ? NAMED_SO : NAMED_RACY;
}

/* The name that /proc gives an object, if it is the name of that object. */
static struct found named(struct tracer *t, struct task *task, const char *link, bool typed)
{
	char text[ROOM] not_zeroed;
	struct stat object = {0};

	for (int tries = 0; tries < 3; tries++) { /* the object may be moved between the calls here */
		ssize_t len = proc_readlink(t, task, link, text, sizeof text);
		if (len == -ENOENT || len == -ESRCH)
			return nothing(); /* no such descriptor, or the task was killed */
		if (len <= 0 && !still_stopped(t, task))
			return nothing(); /* killed: /proc of one that is ending belongs to root */
		if (len <= 0) {
			snprintf(text, sizeof text, "%d", (int)-len);
			incomplete(t, "walk_failed", text);
			return nothing();
		}
		if (text[0] != '/')
			return (struct found){.what = FOUND_NAMELESS};
		uint32_t id = out_path(t->out, text, (size_t)len);
		struct memo *known = memo(t, id);
		if (known->named && (!typed || knows_type(t, known)))
			return (struct found){.what = FOUND_OBJECT, .type = typed ? known->type : 0, .path = id};
		int named = check_name(t, task, link, text, &object);
		if (named == NAMED_SO) {
			remember_type(t, id, object.st_mode);
			return (struct found){.what = FOUND_OBJECT, .type = object.st_mode & S_IFMT, .path = id};
		}
		if (named == NAMED_OTHERWISE)
			break;
	}
	return (struct found){.what = FOUND_NAMELESS, .type = object.st_mode & S_IFMT};
}

static const char *link_of(int fd, char *buffer, size_t size)
{
	if (fd == AT_FDCWD)
		return "cwd";
	snprintf(buffer, size, "fd/%d", fd);
	return buffer;
}

void folder_moves(struct tracer *t, struct task *task)
{
	task->cwd_generation = 0;
	/* Others go with it, at some moment until it stops again. One that is not known yet may share its folder, too. */
	if ((task->shares_folder || task->memory == NULL) && !task->moving) {
		task->moving = true;
		t->moving++;
		t->moves++;
	}
}

void folder_moved(struct tracer *t, struct task *task)
{
	if (task->moving)
		t->moving--;
	task->moving = false;
}

struct found walk_fd_name(struct tracer *t, struct task *task, int fd)
{
	char link[32];
	/* Who moves it is known, and a move of the folder itself is a new generation. */
	bool steady = fd == AT_FDCWD && task->memory != NULL && (!task->shares_folder || t->moving == 0);

	if (steady && task->cwd_generation == t->generation && (!task->shares_folder || task->cwd_moves == t->moves))
		return (struct found){.what = FOUND_OBJECT, .path = task->cwd};
	struct found found = named(t, task, link_of(fd, link, sizeof link), false);
	if (steady && found.what == FOUND_OBJECT) {
		task->cwd = found.path;
		task->cwd_generation = t->generation;
		task->cwd_moves = t->moves;
	}
	return found;
}

struct found walk_fd(struct tracer *t, struct task *task, int fd)
{
	char link[32];
	return named(t, task, link_of(fd, link, sizeof link), true);
}

mode_t walk_fd_type(struct tracer *t, struct task *task, int fd)
{
	char whole[64];
	struct stat st;

	snprintf(whole, sizeof whole, "%d/fd/%d", task->tid, fd);
	return fstatat(t->proc_fd, whole, &st, 0) < 0 ? 0 : st.st_mode & S_IFMT;
}

/* Whether a descriptor's object is a folder to begin a walk in. One of a file or of a symlink (O_PATH) is none, and what
 * was found "below" it must not be remembered as what the name leads to. */
static bool is_folder(struct tracer *t, uint32_t id, bool *closed)
{
	const struct intern *paths = out_paths(t->out);
	const char *path = intern_bytes(paths, id);
	struct stat st;

	if (memo(t, id)->folder_generation == t->generation) {
		*closed = memo(t, id)->closed;
		return true;
	}
	if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode))
		return false;
	if (!in_proc(path, intern_len(paths, id)))
		remember_folder(t, id, st.st_mode);
	*closed = !(st.st_mode & S_IXOTH);
	return true;
}

static void remember_answer(struct tracer *t, uint32_t key, const struct walk *w, struct found found)
{
	uint32_t end = path_id(t, w->at, w->at_len);
	uint32_t version = memo(t, end)->version; /* which may move the memos */

	memo(t, key)->answer[w->follow] = (struct answer){t->generation, end, version, found};
}

struct found walk_at(struct tracer *t, struct task *task, struct walk_from from, const char *path, size_t len)
{
	static struct walk w; /* 24 KiB, and the walk never nests */
	struct found found;

	if (len == 0 || len >= PATH_MAX)
		return nothing();
	w.t = t;
	w.task = task;
	w.follow = from.follow;
	w.at_len = w.root_len = 0;
	w.links = 0;
	w.fleeting = w.closed = false;
	if (path[0] != '/' || from.in_root) {
		struct found base = walk_fd_name(t, task, from.dirfd);
		if (base.what != FOUND_OBJECT)
			return base; /* deleted, or no folder at all: nothing can be found from there */
		if (!is_folder(t, base.path, &w.closed)) {
			out_saw(t->out, EV_PROBE, base.path);
			return nothing();
		}
		const struct intern *paths = out_paths(t->out);
		w.at_len = intern_len(paths, base.path);
		if (w.at_len + len + 2 >= ROOM)
			return nothing();
		memcpy(w.at, intern_bytes(paths, base.path), w.at_len);
		if (w.at_len == 1)
			w.at_len = 0;
		if (from.in_root)
			w.root_len = w.at_len;
	}
	/* The lexical whole is the key of the memory. */
	memcpy(w.rest, w.at, w.at_len);
	w.rest[w.at_len] = '/';
	memcpy(w.rest + w.at_len + 1, path, len);
	size_t skip = path[0] == '/' && w.at_len == 0 ? 1 : 0;
	uint32_t key = out_path(t->out, w.rest + skip, w.at_len + 1 + len - skip);
	task->look = (struct look){ .path = key, .walked = true, .follow = from.follow };
	bool memorable = !from.in_root;
	const struct answer *known = &memo(t, key)->answer[from.follow];
	bool remembered = memorable && known->generation == t->generation && memo(t, known->end)->version == known->version;
	t->counts.walks++;
	t->counts.known_walks += remembered;
	if (remembered)
		return known->found;

	memcpy(w.rest, path, len);
	w.rest_at = 0;
	w.rest_len = len;
	while (step(&w, &found) == STEP_ON)
		;
	bool steady = !w.fleeting && !in_proc(w.at, w.at_len) && found.what != FOUND_NAMELESS;
	found.sure = steady && !(w.closed && found.what == FOUND_OBJECT);
	if (memorable && steady)
		remember_answer(t, key, &w, found);
	return found;
}
