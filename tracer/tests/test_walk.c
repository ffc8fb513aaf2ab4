/* The physical walk, on a small tree of its own: where names lead, and what is remembered for how long. */
#include <assert.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "decode.h"

static struct tracer tracer;
static struct task task;
static char here[] = "/tmp/mulligan-walk-XXXXXX";

static struct found walk(const char *path, bool follow)
{
	struct walk_from from = {.dirfd = AT_FDCWD, .follow = follow};
	return walk_at(&tracer, &task, from, path, strlen(path));
}

static void leads(const char *path, bool follow, enum found_what what, const char *to)
{
	char whole[PATH_MAX];
	struct found found = walk(path, follow);

	snprintf(whole, sizeof whole, "%s%s%s", here, *to ? "/" : "", to);
	if (*to == '/')
		snprintf(whole, sizeof whole, "%s", to);
	if (found.what != what || (what != FOUND_NOTHING && strcmp(intern_bytes(out_paths(tracer.out), found.path), whole) != 0)) {
		fprintf(stderr, "%s: %d %s\n", path, found.what,
			found.what == FOUND_NOTHING ? "" : intern_bytes(out_paths(tracer.out), found.path));
		abort();
	}
}

static void saw(unsigned kind, const char *name)
{
	char whole[PATH_MAX];
	int len = snprintf(whole, sizeof whole, "%s/%s", here, name);

	assert(out_was_seen(tracer.out, kind, out_path(tracer.out, whole, (size_t)len)));
}

static void names(void)
{
	leads("d/file", true, FOUND_OBJECT, "d/file");
	leads("./d//.///file", true, FOUND_OBJECT, "d/file");
	leads("d", true, FOUND_OBJECT, "d");
	leads("d/", false, FOUND_OBJECT, "d");
	leads(".", true, FOUND_OBJECT, "");
	leads("/", true, FOUND_OBJECT, "/");
	leads("/..", true, FOUND_OBJECT, "/");
	leads("/../../tmp", true, FOUND_OBJECT, "/tmp");
	leads("d/..", true, FOUND_OBJECT, "");
	leads("absent", true, FOUND_ABSENT, "absent");
	leads("absent/", true, FOUND_ABSENT, "absent");
	leads("absent/x", true, FOUND_NOTHING, "");
	leads("d/file/x", true, FOUND_NOTHING, "");
	leads("d/file/", true, FOUND_NOTHING, "");
	saw(EV_MISSED, "absent");
	saw(EV_PROBE, "d/file");
}

static void links(void)
{
	leads("link", true, FOUND_OBJECT, "d/file");
	leads("link", false, FOUND_OBJECT, "link");
	leads("folder/file", false, FOUND_OBJECT, "d/file");
	leads("folder", false, FOUND_OBJECT, "folder");
	leads("folder/", false, FOUND_OBJECT, "d");
	leads("folder/../d/file", true, FOUND_OBJECT, "d/file");
	leads("dangling", true, FOUND_ABSENT, "nowhere");
	leads("dangling/x", true, FOUND_NOTHING, "");
	leads("loop", true, FOUND_NOTHING, "");
	leads("loop", false, FOUND_OBJECT, "loop");
	saw(EV_LINK, "link");
	saw(EV_LINK, "folder");
	saw(EV_LINK, "dangling");
	saw(EV_MISSED, "nowhere");
}

static void memory(void)
{
	assert(unlink("d/file") == 0);
	leads("d/file", true, FOUND_OBJECT, "d/file"); /* nobody said that names changed */
	names_changed(&tracer);
	leads("d/file", true, FOUND_ABSENT, "d/file");
	assert(close(open("d/file", O_CREAT | O_WRONLY | O_CLOEXEC, 0600)) == 0);
	leads("d/file", true, FOUND_ABSENT, "d/file");
	names_changed(&tracer);
	leads("d/file", true, FOUND_OBJECT, "d/file");
}

static void descriptors(void)
{
	char path[64];
	int fd = open("d/file", O_RDONLY | O_CLOEXEC), pair[2];

	assert(fd >= 0 && pipe(pair) == 0);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	leads(path, true, FOUND_OBJECT, "d/file");
	snprintf(path, sizeof path, "/dev/fd/%d", fd);
	leads(path, true, FOUND_OBJECT, "d/file");
	leads("/proc/self/cwd/d/file", true, FOUND_OBJECT, "d/file");
	leads("/proc/thread-self/cwd/absent", true, FOUND_ABSENT, "absent");
	snprintf(path, sizeof path, "/proc/self/fd/%d", pair[0]);
	assert(walk(path, true).what == FOUND_NAMELESS);
	assert(walk_fd(&tracer, &task, pair[0]).what == FOUND_NAMELESS);
	assert(walk_fd(&tracer, &task, 999).what == FOUND_NOTHING);
	assert(walk_fd(&tracer, &task, fd).type == S_IFREG);
	assert(unlink("d/file") == 0);
	names_changed(&tracer);
	assert(walk_fd_name(&tracer, &task, fd).what == FOUND_NAMELESS);
}

static void long_names(void)
{
	char path[PATH_MAX + 16];

	memset(path, 'x', sizeof path);
	path[sizeof path - 1] = '\0';
	assert(walk(path, true).what == FOUND_NOTHING);
	path[300] = '\0';
	assert(walk(path, true).what == FOUND_NOTHING);
	for (size_t i = 0; i + 3 < PATH_MAX - 1; i += 3)
		memcpy(path + i, "d/.", 4);
	(void)walk(path, true);
	for (size_t i = 0; i + 7 < PATH_MAX - 1; i += 7)
		memcpy(path + i, "folder/", 8);
	(void)walk(path, true); /* more links than are followed */
}

int main(void)
{
	int sink = open("/dev/null", O_WRONLY | O_CLOEXEC);

	tracer.out = out_new(sink);
	tracer.proc_fd = open("/proc", O_PATH | O_CLOEXEC);
	tracer.generation = 1;
	task.tid = getpid();
	assert(tracer.out != NULL && mkdtemp(here) != NULL && chdir(here) == 0);
	assert(mkdir("d", 0700) == 0 && close(open("d/file", O_CREAT | O_WRONLY | O_CLOEXEC, 0600)) == 0);
	assert(symlink("d/file", "link") == 0 && symlink("d", "folder") == 0);
	assert(symlink("nowhere", "dangling") == 0 && symlink("loop", "loop") == 0);
	names();
	links();
	memory();
	descriptors();
	long_names();
	unlink("link");
	unlink("folder");
	unlink("dangling");
	unlink("loop");
	assert(rmdir("d") == 0 && chdir("/") == 0 && rmdir(here) == 0);
	walk_free(&tracer);
	out_free(tracer.out);
	return 0;
}
