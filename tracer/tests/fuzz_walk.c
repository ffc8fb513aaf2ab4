/* Fuzzing the walk on a small tree with links of all sorts: where a name leads is where the kernel says that it does. */
#include "../src/walk.c"

#include <sys/syscall.h>

#include "fuzz.h"

static const char *const parts[] = { "a", "b", "file", "to-a", "up", "loop", "round", "gone", "abs", "nested", "..", ".", "", "x", "to-file", "self" };

static void make_tree(void)
{
	static char here[] = "/tmp/mulligan-fuzz-XXXXXX";
	static bool made;

	if (made)
		return;
	made = true;
	assert(mkdtemp(here) != NULL && chdir(here) == 0);
	assert(mkdir("a", 0755) == 0 && mkdir("a/b", 0755) == 0 && mkdir("a/b/a", 0755) == 0 && mkdir("b", 0755) == 0);
	close(open("a/file", O_CREAT | O_WRONLY, 0644));
	close(open("a/b/file", O_CREAT | O_WRONLY, 0644));
	assert(symlink("a", "to-a") == 0 && symlink("../..", "a/b/up") == 0 && symlink("loop", "loop") == 0);
	assert(symlink("../round/x", "round") == 0 && symlink("nothing/more", "gone") == 0 && symlink(here, "abs") == 0);
	assert(symlink("to-a/b/up/a/./b//", "nested") == 0 && symlink("a/file", "to-file") == 0 && symlink(".", "self") == 0);
	assert(symlink("../to-a/file", "b/file") == 0 && symlink("../self/a", "b/a") == 0);
}

static void compare(const char *path, bool follow)
{
	struct walk_from from = { .dirfd = AT_FDCWD, .follow = follow };
	struct stat theirs, ours;
	struct found found = walk_at(&fuzz_tracer, &fuzz_task, from, path, strlen(path));
	int there, tries = 0, error;

	/* A lookup that the kernel begins anew, since something was renamed meanwhile, counts its links twice
	 * (path_lookupat() after RCU mode): then more than 20 of them may be too many, once. */
	do {
		there = fstatat(AT_FDCWD, path, &theirs, follow ? 0 : AT_SYMLINK_NOFOLLOW);
		error = there < 0 ? errno : 0;
	} while (error == ELOOP && found.what == FOUND_OBJECT && ++tries < 1000);

	if (there == 0) {
		assert(found.what == FOUND_OBJECT);
		assert(lstat(intern_bytes(out_paths(fuzz_tracer.out), found.path), &ours) == 0);
		assert(ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev && found.type == (theirs.st_mode & S_IFMT));
	} else if (error == ENOENT)
		assert(found.what == FOUND_ABSENT || found.what == FOUND_NOTHING);
	else if (found.what != FOUND_NOTHING) {
		fprintf(stderr, "%s: %s, but the walk ends at %s\n", path, strerror(error),
			intern_bytes(out_paths(fuzz_tracer.out), found.path));
		abort();
	}
	if (found.what == FOUND_ABSENT)
		assert(lstat(intern_bytes(out_paths(fuzz_tracer.out), found.path), &ours) < 0 && errno == ENOENT);
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	char path[PATH_MAX];
	size_t len = 0;

	if (size > 600)
		return 0;
	make_tree();
	fuzz_begin();
	for (size_t i = 0; i < size; i++) {
		if (bytes[i] & 128) { /* the end of a path: the memory of the walk stays for the next */
			path[len] = '\0';
			if (len > 0)
				compare(path, bytes[i] & 1);
			if (bytes[i] & 64)
				names_changed(&fuzz_tracer);
			len = 0;
			continue;
		}
		int more = snprintf(path + len, sizeof path - len, "%s%s", parts[bytes[i] % 16], bytes[i] & 16 ? "" : "/");
		len += (size_t)more;
		if (bytes[i] & 64 && len < sizeof path - 2) {
			path[len++] = '/';
			path[len] = '\0';
		}
	}
	fuzz_over();
	return 0;
}
