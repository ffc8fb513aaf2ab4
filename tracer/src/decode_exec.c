/* execve and execveat: the program, what interprets it, and what it was given.
 *
 * Everything is read at the entry: afterwards the caller's memory is gone. The result comes by PTRACE_EVENT_EXEC or,
 * for a failure, by the exit stop; a failed exec is reported with its arguments and environment, too. */
#include <elf.h>
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
	MOST_BYTES = 4 * 1024 * 1024, /* of argv, and of the environment */
	MOST_INTERPRETERS = 5,        /* as in the kernel's exec_binprm() */
	HEAD_SIZE = 4096,
	LINE_SIZE = 256, /* BINPRM_BUF_SIZE */
	WINDOW = 4096,
};

struct text {
	char *bytes;
	size_t len, capacity;
};

struct exec_call {
	uint32_t path, cwd;
	uint32_t runs; /* what /proc/TID/exe will say, when `runs_known` */
	bool runs_known;
	bool complete; /* argv and the environment could be read */
	struct text argv, env;
};

void exec_call_free(struct exec_call *exec)
{
	free(exec->argv.bytes);
	free(exec->env.bytes);
	free(exec);
}

/* The page of the guest that was read last: the strings of an exec lie side by side. */
struct window {
	uint64_t start;
	size_t len;
	char bytes[WINDOW];
};

static bool slide(struct tracer *t, const struct task *task, struct window *window, uint64_t address)
{
	if (address >= window->start && address - window->start < window->len)
		return true;
	ssize_t got = guest_read(t, task, address, window->bytes, WINDOW - (size_t)(address % WINDOW));
	window->start = address;
	window->len = got > 0 ? (size_t)got : 0;
	return got > 0;
}

static bool append(struct text *text, const char *bytes, size_t len)
{
	if (text->len + len > MOST_BYTES)
		return false;
	if (text->len + len > text->capacity) {
		size_t capacity = text->capacity ? text->capacity : WINDOW;
		while (capacity < text->len + len)
			capacity *= 2;
		char *grown = realloc(text->bytes, capacity);
		if (grown == NULL)
			return false;
		text->bytes = grown;
		text->capacity = capacity;
	}
	memcpy(text->bytes + text->len, bytes, len);
	text->len += len;
	return true;
}

static bool append_string(struct tracer *t, const struct task *task, struct window *window, uint64_t address,
			  struct text *text)
{
	for (;;) {
		if (!slide(t, task, window, address))
			return false;
		const char *from = window->bytes + (address - window->start);
		size_t there = window->len - (size_t)(address - window->start);
		const char *nul = memchr(from, '\0', there);
		if (nul != NULL)
			return append(text, from, (size_t)(nul - from) + 1);
		if (!append(text, from, there))
			return false;
		address += there;
	}
}

/* A NULL-terminated array of strings, NUL-joined into `text` (each with its NUL but the last). */
static bool read_strings(struct tracer *t, const struct task *task, uint64_t array, struct text *text)
{
	struct window strings = { 0 };
	uint64_t pointers[64];
	ssize_t have = 0;
	size_t at = 0;

	for (; array != 0; at++) {
		if (at == (size_t)have) {
			array += at * sizeof pointers[0];
			size_t want = sizeof pointers, page_left = WINDOW - (size_t)(array % WINDOW);
			if (page_left >= sizeof pointers[0] && page_left < want)
				want = page_left;
			have = guest_read(t, task, array, pointers, want) / (ssize_t)sizeof pointers[0];
			at = 0;
			if (have <= 0)
				return false;
		}
		if (pointers[at] == 0)
			break;
		if (!append_string(t, task, &strings, pointers[at], text))
			return false;
	}
	if (text->len > 0)
		text->len--;
	return true;
}

static struct found walk_interpreter(struct tracer *t, struct task *task, const char *path, size_t len)
{
	struct walk_from from = { .dirfd = AT_FDCWD, .follow = true };
	struct found found = walk_at(t, task, from, path, len);

	if (found.what == FOUND_OBJECT)
		out_saw(t->out, found.type == S_IFREG ? EV_READ : EV_PROBE, found.path);
	return found;
}

/* "#! interpreter [argument]": the interpreter's place in the line, or 0. */
static size_t shebang(const char *head, size_t len, const char **start)
{
	size_t at = 2, end;

	if (len < 3 || head[0] != '#' || head[1] != '!')
		return 0;
	if (len > LINE_SIZE)
		len = LINE_SIZE;
	while (at < len && (head[at] == ' ' || head[at] == '\t'))
		at++;
	for (end = at; end < len && !strchr(" \t\n", head[end]);) /* strchr finds the NUL, too */
		end++;
	*start = head + at;
	return end - at;
}

/* PT_INTERP of an ELF file of this machine's word size: its length in `path`, or 0. */
static size_t elf_interpreter(int fd, const char *head, size_t len, char *path)
{
	Elf64_Ehdr header;
	Elf64_Phdr segment;

	if (len < sizeof header || memcmp(head, ELFMAG, SELFMAG) != 0 || head[EI_CLASS] != ELFCLASS64)
		return 0;
	memcpy(&header, head, sizeof header);
	if (header.e_phentsize != sizeof segment || header.e_phnum > 65536 / sizeof segment) /* as in load_elf_phdrs() */
		return 0;
	for (unsigned i = 0; i < header.e_phnum; i++) {
		off_t at = (off_t)(header.e_phoff + i * sizeof segment);
		if (at < 0 || pread(fd, &segment, sizeof segment, at) != (ssize_t)sizeof segment)
			return 0;
		if (segment.p_type != PT_INTERP)
			continue;
		if (segment.p_filesz < 2 || segment.p_filesz > PATH_MAX)
			return 0;
		ssize_t got = pread(fd, path, segment.p_filesz, (off_t)segment.p_offset);
		return got < 2 ? 0 : strnlen(path, (size_t)got);
	}
	return 0;
}

/* Follows a program opened as `fd` through its interpreters; `last` becomes the file that the kernel loads. */
static void read_chain(struct tracer *t, struct task *task, int fd, struct found *last)
{
	for (int depth = 0; fd >= 0; depth++) {
		cleanup_fd int program = fd;
		char head[HEAD_SIZE], path[PATH_MAX];
		ssize_t got = pread(program, head, sizeof head, 0);
		const char *name = path;
		size_t len;
		bool script;

		fd = -1;
		if (got <= 0)
			return;
		len = shebang(head, (size_t)got, &name);
		script = len > 0;
		if (!script)
			len = elf_interpreter(program, head, (size_t)got, path);
		if (len == 0 || depth > MOST_INTERPRETERS)
			return;
		struct found found = walk_interpreter(t, task, name, len);
		if (!script || found.what != FOUND_OBJECT || found.type != S_IFREG)
			return;
		*last = found;
		fd = open(intern_bytes(out_paths(t->out), found.path), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
	}
}

static int open_program(struct tracer *t, struct task *task, struct found program)
{
	char link[64];

	if (program.type != S_IFREG)
		return -1;
	if (program.what == FOUND_OBJECT) {
		int fd = open(intern_bytes(out_paths(t->out), program.path),
			      O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW);
		if (fd < 0)
			incomplete(t, "walk_failed", "program cannot be read");
		return fd;
	}
	/* A memfd, or a file without a name: only by its descriptor. */
	snprintf(link, sizeof link, "%d/fd/%d", task->tid, dirfd_argument(task->pending.row->dirfd, &task->pending));
	return openat(t->proc_fd, link, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

/* The path as it was written, made absolute: for a program that was not found. */
static uint32_t written_path(struct tracer *t, struct task *task, uint32_t cwd)
{
	char name[PATH_MAX], whole[PATH_MAX * 2 + 1];
	const struct pending *call = &task->pending;
	ssize_t len = guest_path(t, task, call->args[call->row->path], name);
	struct found base = { .what = FOUND_OBJECT, .type = S_IFDIR, .path = cwd };

	if (len < 0)
		return out_path(t->out, "", 0);
	if (name[0] == '/')
		return out_path(t->out, name, (size_t)len);
	if (dirfd_argument(call->row->dirfd, call) != AT_FDCWD)
		base = walk_fd_name(t, task, dirfd_argument(call->row->dirfd, call));
	if (base.what != FOUND_OBJECT || intern_len(out_paths(t->out), base.path) > PATH_MAX)
		return out_path(t->out, name, (size_t)len);
	const char *folder = intern_bytes(out_paths(t->out), base.path);
	int total = snprintf(whole, sizeof whole, "%s/%s", strcmp(folder, "/") == 0 ? "" : folder, name);
	return out_path(t->out, whole, (size_t)total);
}

static uint32_t working_folder(struct tracer *t, struct task *task)
{
	char text[PATH_MAX];
	ssize_t len = proc_readlink(t, task, "cwd", text, sizeof text);

	return len > 0 ? out_path(t->out, text, (size_t)len) : out_path(t->out, "", 0);
}

enum after exec_enter(struct tracer *t, struct task *task)
{
	struct pending *call = &task->pending;
	struct exec_call *exec = calloc(1, sizeof *exec);
	int argv = call->row->path + 1;

	if (exec == NULL)
		abort();
	call->exec = exec;
	struct found program = argument_walk(t, task, call->row->dirfd, call->row->path);
	exec->cwd = working_folder(t, task);
	exec->path = program.what == FOUND_OBJECT ? program.path : written_path(t, task, exec->cwd);
	if (program.what == FOUND_OBJECT)
		out_saw(t->out, program.type == S_IFREG ? EV_READ : EV_PROBE, program.path);
	exec->complete = read_strings(t, task, call->args[argv], &exec->argv) &&
			 read_strings(t, task, call->args[argv + 1], &exec->env);
	if (program.what == FOUND_OBJECT || program.what == FOUND_NAMELESS) {
		struct found last = program;
		read_chain(t, task, open_program(t, task, program), &last);
		exec->runs = last.path;
		exec->runs_known = last.what == FOUND_OBJECT;
	}
	return AFTER_WANTS_EXIT;
}

/* The mask that a task makes files with, or -1 (proc_pid_status(5): Umask, second line). */
static int umask_of(const struct tracer *t, const struct task *task)
{
	char name[32], text[512];
	unsigned mask;

	snprintf(name, sizeof name, "%d/status", task->tid);
	cleanup_fd int fd = openat(t->proc_fd, name, O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : RETRY(read(fd, text, sizeof text - 1));
	if (len <= 0)
		return -1;
	text[len] = '\0';
	const char *line = strstr(text, "\nUmask:\t"); /* a name has its newlines escaped */
	return line && sscanf(line, "\nUmask:\t%o", &mask) == 1 ? (int)(mask & 0777) : -1;
}

static void report(struct tracer *t, struct task *task, int error)
{
	const struct exec_call *exec = task->pending.exec;

	/* What the kernel could not read either is no loss. */
	if ((!exec->complete || task->pending.unread) && error != EFAULT && error != E2BIG)
		incomplete(t, "unreadable_argument", task->pending.row->name);
	out_exec(t->out, &(struct out_exec){
				 .tid = task->tid,
				 .path = exec->path,
				 .cwd = exec->cwd,
				 .argv = exec->argv.bytes == NULL ? "" : exec->argv.bytes,
				 .argv_len = exec->argv.len,
				 .env = exec->env.bytes == NULL ? "" : exec->env.bytes,
				 .env_len = exec->env.len,
				 .error = error,
				 .umask = error ? umask_of(t, task) : -1,
			 });
}

void exec_leave(struct tracer *t, struct task *task, int64_t result)
{
	if (result < 0 && task->pending.exec != NULL)
		report(t, task, (int)-result);
}

void decode_exec_done(struct tracer *t, struct task *task)
{
	char text[PATH_MAX];

	if (task->pending.exec == NULL)
		return;
	ssize_t len = proc_readlink(t, task, "exe", text, sizeof text);
	/* Another thread may have changed the path after it was read: then this is the program. */
	if (len > 0 && task->pending.exec->runs_known) {
		uint32_t runs = out_path(t->out, text, (size_t)len);
		if (runs != task->pending.exec->runs)
			out_saw(t->out, EV_READ, runs);
	}
	report(t, task, 0);
}
