/* A guest that makes random calls on few names, so that they meet, and prints what each of them gave.
 *
 * Usage: anycalls SEED COUNT [gentle]; the same seed makes the same calls. "gentle": mostly looks, changes little.
 * It works deep below its folder, so that no `..` leads out of it. Nothing that differs from run to run is printed. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

enum { FDS = 5, DEPTH = 8 };

static uint64_t state;
static char base[PATH_MAX];
static int fds[FDS];
static char said[1 << 20];
static size_t said_len;

static unsigned any(unsigned below)
{
	state ^= state >> 12;
	state ^= state << 25;
	state ^= state >> 27;
	return (unsigned)((state * 2685821657736338717ULL) >> 33) % below;
}

static bool one_in(unsigned n)
{
	return any(n) == 0;
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	va_list args;
	va_start(args, format);
	int n = vsnprintf(said + said_len, sizeof said - said_len, format, args);
	va_end(args);
	if (n > 0 && said_len + (size_t)n < sizeof said)
		said_len += (size_t)n;
}

static long gave(const char *name, const char *path, long result)
{
	say("%s %s: %s\n", name, path, result < 0 ? strerrorname_np(errno) : "ok");
	return result;
}

/* A path of a few names, mostly relative; each call has its own buffer. */
static const char *path(void)
{
	static char buffers[4][PATH_MAX];
	static unsigned next;
	static const char *const names[] = {"a", "b", "c", "d", "a", "b", "..", "."};
	char *out = buffers[next++ % 4];
	int ups = 0;

	out[0] = '\0';
	if (one_in(40))
		return out;
	if (one_in(12))
		sprintf(out, "%s/", base);
	else if (one_in(20))
		strcpy(out, "/proc/self/cwd/");
	else if (one_in(20))
		sprintf(out, "/proc/self/fd/%d/", fds[any(FDS)]);
	for (unsigned i = 0, count = one_in(2) ? 1 : 1 + any(3); i < count; i++) {
		const char *name = names[any(8)];
		if (strcmp(name, "..") == 0 && ups++ > 1)
			name = "c";
		strcat(out, name);
		if (i + 1 < count)
			strcat(out, one_in(12) ? "//" : "/");
	}
	if (one_in(10))
		strcat(out, "/");
	return out;
}

/* The same for a descriptor itself, now and then. */
static const char *magic(void)
{
	static char out[64];
	if (!one_in(4))
		return path();
	sprintf(out, one_in(3) ? "/dev/fd/%d" : "/proc/self/fd/%d", fds[any(FDS)]);
	return out;
}

static int folder(void)
{
	return one_in(2) ? AT_FDCWD : fds[any(FDS)];
}

static int flag(int bit)
{
	return one_in(3) ? bit : 0;
}

static void keep(int fd)
{
	unsigned at = any(FDS);
	if (fd < 0)
		return;
	close(fds[at]);
	if (dup2(fd, fds[at]) == fds[at])
		close(fd);
}

static void tell(const char *name, const char *p, int result, const struct stat *st)
{
	if (gave(name, p, result) >= 0)
		say("  %o %lld %u\n", (unsigned)st->st_mode, S_ISREG(st->st_mode) ? (long long)st->st_size : 0LL,
		    S_ISDIR(st->st_mode) ? 0u : (unsigned)st->st_nlink);
}

static void tell_content(int fd)
{
	char data[256];
	ssize_t n = read(fd, data, sizeof data);
	say("  read %.*s\n", n < 0 ? 0 : (int)n, data);
}

static void open_one(void)
{
	int ways[] = {O_RDONLY, O_RDONLY, O_RDWR, O_WRONLY}, way = ways[any(4)];
	const char *p = magic();
	int flags = way | flag(O_CREAT) | flag(O_EXCL) | flag(O_TRUNC) | flag(O_APPEND) | O_NONBLOCK | O_CLOEXEC;
	long fd;

	if (one_in(8))
		flags |= O_DIRECTORY;
	if (one_in(6))
		flags |= O_NOFOLLOW;
	if (one_in(8))
		flags = O_PATH | flag(O_NOFOLLOW) | O_CLOEXEC;
	switch (any(5)) {
	case 0: fd = syscall(SYS_open, p, flags, 0755); break;
	case 1: fd = syscall(SYS_creat, p, 0755); break;
	case 2: {
		struct open_how how = {.flags = (unsigned)(flags & ~O_APPEND), .mode = flags & O_CREAT ? 0755 : 0};
		how.resolve = one_in(2) ? 0 : one_in(2) ? RESOLVE_IN_ROOT : one_in(2) ? RESOLVE_BENEATH : RESOLVE_NO_SYMLINKS;
		if (flags & O_PATH)
			how.flags = (unsigned)flags;
		fd = syscall(SYS_openat2, folder(), p, &how, sizeof how);
		break;
	}
	default: fd = syscall(SYS_openat, folder(), p, flags, 0755); break;
	}
	if (gave("open", p, fd) < 0)
		return;
	struct stat st;
	if (one_in(2) && fstat((int)fd, &st) == 0)
		tell("fstat", p, 0, &st);
	if ((flags & O_ACCMODE) != O_RDONLY && one_in(2)) {
		static const char *const texts[] = {"x", "some words", "#!/bin/true\n", "#!a\n", "#!b\n"};
		const char *text = texts[any(5)];
		if (write((int)fd, text, strlen(text)) < 0)
			say("  not written\n");
	} else if ((flags & O_ACCMODE) == O_RDONLY)
		tell_content((int)fd);
	keep((int)fd);
}

static int by_name(const void *one, const void *other)
{
	return strcmp(*(char *const *)one, *(char *const *)other);
}

static void list(void)
{
	const char *p = path();
	DIR *at = opendir(p);
	char *names[64];
	size_t count = 0;
	struct dirent *entry;

	if (gave("list", p, at == NULL ? -1 : 0) < 0)
		return;
	while ((entry = readdir(at)) != NULL && count < 64)
		names[count++] = strdup(entry->d_name);
	closedir(at);
	qsort(names, count, sizeof names[0], by_name);
	for (size_t i = 0; i < count; i++)
		say("  %s", names[i]);
	say("\n");
}

static void look(void)
{
	struct stat st;
	struct statx stx;
	struct statfs fs;
	char text[PATH_MAX];
	const char *p = magic();
	long n;

	switch (any(14)) {
	case 0: tell("stat", p, (int)syscall(SYS_stat, p, &st), &st); break;
	case 1: tell("lstat", p, (int)syscall(SYS_lstat, p, &st), &st); break;
	case 2: {
		int flags = flag(AT_SYMLINK_NOFOLLOW) | flag(AT_EMPTY_PATH);
		tell("fstatat", p, (int)syscall(SYS_newfstatat, folder(), p, &st, flags), &st);
		break;
	}
	case 3: {
		unsigned mask = one_in(2) ? STATX_BASIC_STATS : STATX_MODE | STATX_TYPE;
		int result = statx(folder(), p, flag(AT_SYMLINK_NOFOLLOW) | flag(AT_EMPTY_PATH), mask, &stx);
		if (gave("statx", p, result) >= 0)
			say("  %o\n", stx.stx_mode);
		break;
	}
	case 4: gave("access", p, access(p, (int)any(8))); break;
	case 5: gave("faccessat2", p, syscall(SYS_faccessat2, folder(), p, any(8), flag(AT_SYMLINK_NOFOLLOW) | flag(AT_EMPTY_PATH))); break;
	case 6:
	case 7:
		n = one_in(2) ? readlink(p, text, sizeof text) : readlinkat(folder(), p, text, sizeof text);
		if (gave("readlink", p, n) >= 0 && p[0] != '/')
			say("  %.*s\n", (int)n, text);
		break;
	case 8: gave("statfs", p, statfs(p, &fs)); break;
	case 9: gave("getxattr", p, one_in(2) ? getxattr(p, "user.a", text, 9) : lgetxattr(p, "user.a", text, 9)); break;
	case 10: gave("listxattr", p, one_in(2) ? listxattr(p, text, 99) : llistxattr(p, text, 99)); break;
	case 11: gave("fgetxattr", "", fgetxattr(fds[any(FDS)], "user.a", text, 9)); break;
	case 12: {
		int watch = inotify_init1(IN_CLOEXEC);
		if (watch < 0)
			exit(3);
		gave("watch", p, inotify_add_watch(watch, p, IN_MODIFY));
		close(watch);
		break;
	}
	default: list(); break;
	}
}

/* A FIFO that somebody has open: no open of it waits. */
static void hold(const char *p, int at, long result)
{
	if (gave("mknod", p, result) >= 0)
		(void)!openat(at, p, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
}

static void make(void)
{
	const char *p = path(), *q = path();
	int at = folder();

	switch (any(8)) {
	case 0:
	case 1: gave("mkdir", p, mkdir(p, 0755)); break;
	case 2: gave("mkdirat", p, mkdirat(folder(), p, 0700)); break;
	case 3:
	case 4: gave("symlink", p, symlink(q, p)); break;
	case 5: gave("symlinkat", p, symlinkat(q, folder(), p)); break;
	case 6: hold(p, AT_FDCWD, mknod(p, (one_in(2) ? S_IFIFO : S_IFREG) | 0644, 0)); break;
	default: hold(p, at, mknodat(at, p, (one_in(2) ? S_IFIFO : 0) | 0600, 0)); break;
	}
}

static void unmake(void)
{
	const char *p = path();

	switch (any(3)) {
	case 0: gave("unlink", p, unlink(p)); break;
	case 1: gave("rmdir", p, rmdir(p)); break;
	default: gave("unlinkat", p, unlinkat(folder(), p, flag(AT_REMOVEDIR))); break;
	}
}

static void rename_one(void)
{
	const char *p = path(), *q = path();

	switch (any(3)) {
	case 0: gave("rename", p, rename(p, q)); break;
	case 1: gave("renameat", p, syscall(SYS_renameat, folder(), p, folder(), q)); break;
	default: gave("renameat2", p, syscall(SYS_renameat2, folder(), p, folder(), q, one_in(2) ? RENAME_EXCHANGE : flag(RENAME_NOREPLACE))); break;
	}
}

static void link_one(void)
{
	const char *p = magic(), *q = path();

	if (one_in(6)) {
		char name[64];
		int fd = open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0644);
		sprintf(name, "/proc/self/fd/%d", fd);
		gave("tmpfile", q, fd < 0 ? -1 : linkat(AT_FDCWD, name, AT_FDCWD, q, AT_SYMLINK_FOLLOW));
		close(fd);
	} else if (one_in(2))
		gave("link", p, link(p, q));
	else
		gave("linkat", p, linkat(folder(), p, folder(), q, flag(AT_SYMLINK_FOLLOW) | flag(AT_EMPTY_PATH)));
}

static void attribute(void)
{
	static const mode_t modes[] = {0755, 0700, 0777, 0711};
	static const struct timespec then[2] = {{1000000000, 0}, {1000000001, 0}}, only_access[2] = {{5, 0}, {0, UTIME_OMIT}};
	const char *p = magic();
	mode_t mode = modes[any(4)];
	int fd = fds[any(FDS)];

	switch (any(14)) {
	case 0: gave("chmod", p, chmod(p, mode)); break;
	case 1: gave("fchmodat", p, syscall(SYS_fchmodat, folder(), p, mode)); break;
	case 2: gave("fchmodat2", p, syscall(SYS_fchmodat2, folder(), p, mode, flag(AT_SYMLINK_NOFOLLOW) | flag(AT_EMPTY_PATH))); break;
	case 3: gave("fchmod", "", fchmod(fd, mode)); break;
	case 4: gave("chown", p, one_in(2) ? chown(p, getuid(), getgid()) : lchown(p, getuid(), getgid())); break;
	case 5: gave("fchownat", p, fchownat(folder(), p, getuid(), getgid(), flag(AT_SYMLINK_NOFOLLOW) | flag(AT_EMPTY_PATH))); break;
	case 6: gave("fchown", "", fchown(fd, getuid(), getgid())); break;
	case 7: gave("utimensat", p, syscall(SYS_utimensat, folder(), p, then, flag(AT_SYMLINK_NOFOLLOW) | flag(AT_EMPTY_PATH))); break;
	case 8: gave("futimens", "", syscall(SYS_utimensat, fd, NULL, one_in(2) ? then : only_access, 0)); break;
	case 9: gave("utimes", p, one_in(2) ? utimes(p, NULL) : (int)syscall(SYS_futimesat, folder(), p, NULL)); break;
	case 10: gave("setxattr", p, one_in(2) ? setxattr(p, "user.a", "1", 1, 0) : lsetxattr(p, "user.a", "2", 1, 0)); break;
	case 11: gave("fsetxattr", "", fsetxattr(fd, "user.a", "3", 1, 0)); break;
	case 12: gave("removexattr", p, one_in(2) ? removexattr(p, "user.a") : lremovexattr(p, "user.a")); break;
	default: gave("truncate", p, truncate(p, one_in(2) ? 0 : 3)); break;
	}
}

static void socket_one(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *p = path();
	int fd = socket(AF_UNIX, (one_in(2) ? SOCK_STREAM : SOCK_DGRAM) | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	strncpy(address.sun_path, p, sizeof address.sun_path - 1);
	if (p[0] == '\0')
		strcpy(address.sun_path, "b");
	if (one_in(2))
		gave("bind", p, bind(fd, (struct sockaddr *)&address, sizeof address));
	else if (one_in(2))
		gave("connect", p, connect(fd, (struct sockaddr *)&address, sizeof address));
	else
		gave("sendto", p, sendto(fd, "x", 1, MSG_NOSIGNAL, (struct sockaddr *)&address, sizeof address));
	close(fd);
}

static void exec_one(void)
{
	const char *p = path();
	char *argv[] = {(char *)"p", NULL};
	int status, way = (int)any(3), at = folder(), flags = flag(AT_SYMLINK_NOFOLLOW) | flag(AT_EMPTY_PATH);
	pid_t child = fork();

	if (child < 0)
		exit(3); /* the machine's limits are no part of what is tried here */
	if (child == 0) {
		if (way == 0)
			syscall(SYS_execveat, at, p, argv, environ, flags);
		else
			execv(p, argv);
		_exit(errno % 100 + 100);
	}
	if (waitpid(child, &status, 0) == child)
		say("exec %s: %d\n", p, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

static void move(void)
{
	char where[PATH_MAX];
	const char *p = path();

	if (one_in(3))
		gave("fchdir", "", fchdir(fds[any(FDS)]));
	else
		gave("chdir", p, chdir(p));
	size_t len = strlen(base) - 4; /* two folders higher is as high as it goes */
	bool known = getcwd(where, sizeof where) != NULL;
	if ((!known && one_in(2)) || (known && (strncmp(where, base, len) != 0 || strlen(where) > len + 40)))
		if (chdir(base) != 0)
			exit(3);
}

static void prepare(void)
{
	if (getcwd(base, sizeof base) == NULL)
		exit(3);
	for (int i = 1; i <= DEPTH; i++) {
		char name[8];
		sprintf(name, "/%d", i);
		strcat(base, name);
		if (mkdir(base, 0755) != 0 && errno != EEXIST)
			exit(3);
	}
	if (chdir(base) != 0)
		exit(3);
	for (int i = 0; i < FDS; i++)
		fds[i] = dup2(open(".", O_RDONLY | O_DIRECTORY), 10 + i);
}

int main(int argc, char **argv)
{
	bool gentle = argc > 3;

	if (argc < 3)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	state = strtoull(argv[1], NULL, 10) * 0x9E3779B97F4A7C15ULL + 1;
	prepare();
	for (long left = atol(argv[2]); left > 0; left--) {
		unsigned turn = any(20);
		if (gentle && turn >= 9 && !one_in(6))
			turn %= 9;
		if (turn < 4)
			look();
		else if (turn < 8)
			open_one();
		else if (turn < 9)
			move();
		else if (turn < 12)
			make();
		else if (turn < 14)
			attribute();
		else if (turn < 16)
			rename_one();
		else if (turn < 17)
			link_one();
		else if (turn < 18)
			socket_one();
		else if (turn < 19)
			unmake();
		else
			exec_one();
	}
	fwrite(said, 1, said_len, stdout);
	return 0;
}
