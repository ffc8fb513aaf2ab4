/* A guest that carries out file operations given as arguments, and prints what it sees.
 *
 * Usage: fsops OP ARG... OP ARG...; every operation goes on after an error, which is printed as "OP: NAME-OF-ERRNO".
 *   w P S  write    a P S  append   t P N  truncate   c P Q  copy      r P Q  rename   u P  unlink
 *   m P    mkdir    d P    rmdir    h P M  chmod      l P Q  link      s T P  symlink  o P  open read-write, no write
 *   p P S  write at byte 2, without truncation        M P S  the same by a shared mapping
 *   e P S  write exclusively to a new file            T P S  write to a nameless file, then name it
 *   q P S  write by a descriptor of the folder        C P Q  copy within the kernel
 *   x P Q  exchange                v P  remove with all below         f P  make a FIFO
 *   k P N  set the mtime to second N                  z P    set the time of access only
 *   H P M  chmod by descriptor     O P N  chown       X P S  set an attribute, or none
 *   j P S  write behind a hole     i P  write what comes by stdin
 *   S P    lstat    L P    list     R P    read       A P    access    Y P  readlink   G P  get the attribute
 *   = P S  write, and give the file its mode back, or whatever the umask 0644, as a patch leaves it
 *   B P    stat     V P    statfs   g P    chdir
 *   ? P    do the next operation only if P exists     ! P    only if it does not
 *   W P    write to P all that was printed so far      D P   dump the tree below P
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define BEHIND_A_HOLE 100000

static char seen[1 << 20];
static size_t seen_len;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...) {
	va_list args;
	va_start(args, format);
	int n = vsnprintf(seen + seen_len, sizeof seen - seen_len, format, args);
	va_end(args);
	if (n > 0 && seen_len + (size_t)n < sizeof seen)
		seen_len += (size_t)n;
}

static void check(char op, int result) {
	if (result < 0)
		say("%c: %s\n", op, strerrorname_np(errno));
}

static void put(char op, const char *path, int flags, const char *data, size_t size) {
	int fd = open(path, O_WRONLY | O_CREAT | O_NONBLOCK | flags, 0644);
	check(op, fd);
	if (fd < 0)
		return;
	check(op, write(fd, data, size) == (ssize_t)size ? 0 : -1);
	close(fd);
}

static char *slurp(char op, const char *path, size_t *size) {
	static char data[1 << 18];
	int fd = open(path, O_RDONLY | O_NONBLOCK);
	check(op, fd);
	if (fd < 0)
		return NULL;
	ssize_t n = read(fd, data, sizeof data);
	check(op, (int)n);
	close(fd);
	if (n < 0)
		return NULL;
	*size = (size_t)n;
	return data;
}

static const char *kind(mode_t mode) {
	return S_ISREG(mode) ? "file" : S_ISDIR(mode) ? "dir" : S_ISLNK(mode) ? "link" : "other";
}

static int visible(const struct dirent *entry) {
	return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static void list(const char *path) {
	struct dirent **names;
	int n = scandir(path, &names, visible, alphasort);
	check('L', n);
	for (int i = 0; i < n; i++)
		say("%s ", names[i]->d_name);
	say("\n");
}

static void dump(const char *path) {
	struct stat st;
	if (lstat(path, &st) < 0)
		return;
	say("%s %s %o", path, kind(st.st_mode), (unsigned)st.st_mode & 07777);
	if (S_ISREG(st.st_mode)) {
		size_t size = 0;
		char *data = slurp('D', path, &size);
		say(" links=%u %.*s\n", (unsigned)st.st_nlink, (int)size, data ? data : "");
	} else if (S_ISLNK(st.st_mode)) {
		char target[4096];
		ssize_t n = readlink(path, target, sizeof target);
		say(" -> %.*s\n", (int)n, target);
	} else {
		say("\n");
	}
	struct dirent **names;
	int n = S_ISDIR(st.st_mode) ? scandir(path, &names, visible, alphasort) : 0;
	for (int i = 0; i < n; i++) {
		char below[8192];
		snprintf(below, sizeof below, "%s/%s", path, names[i]->d_name);
		dump(below);
	}
}

/* The time only where it was set on purpose: two runs have other clocks. */
static void tell(const struct stat *st) {
	say("%s %o %u", kind(st->st_mode), (unsigned)st->st_mode & 07777, (unsigned)st->st_uid);
	if (!S_ISDIR(st->st_mode))
		say(" %lld links=%u", (long long)st->st_size, (unsigned)st->st_nlink);
	if (st->st_mtim.tv_nsec == 0 && st->st_mtim.tv_sec < 100000)
		say(" at %lld", (long long)st->st_mtim.tv_sec);
	say("\n");
}

static void readlink_of(char op, const char *p) {
	char target[4096];
	ssize_t n = readlink(p, target, sizeof target);
	check(op, (int)n);
	if (n >= 0)
		say("%.*s\n", (int)n, target);
}

static void look(char op, const char *p) {
	struct stat st;
	struct statfs fs;
	size_t size = 0;
	char *data, value[64];
	int n;
	switch (op) {
	case 'S':
	case 'B':
		n = op == 'S' ? lstat(p, &st) : stat(p, &st);
		check(op, n);
		if (n == 0)
			tell(&st);
		break;
	case 'Y': readlink_of(op, p); break;
	case 'V': check(op, statfs(p, &fs)); break;
	case 'G':
		n = (int)getxattr(p, "user.x", value, sizeof value);
		check(op, n);
		if (n >= 0)
			say("%.*s\n", n, value);
		break;
	case 'R':
		data = slurp(op, p, &size);
		if (data)
			say("%.*s\n", (int)size, data);
		break;
	case 'A': check(op, access(p, R_OK)); break;
	case 'L': list(p); break;
	case 'D': dump(p); break;
	case 'W': put(op, p, O_TRUNC, seen, seen_len); break;
	default: exit(2);
	}
}

/* Write to an existing file without truncation: by pwrite, perhaps far behind its end, or by a shared mapping as far as the file goes. */
static void patch(char op, const char *p, const char *text) {
	struct stat st;
	int fd = open(p, O_RDWR | O_NONBLOCK);
	check(op, fd);
	if (fd < 0)
		return;
	size_t size = strlen(text);
	if (op == 'p' || op == 'j')
		check(op, (int)pwrite(fd, text, size, op == 'p' ? 2 : BEHIND_A_HOLE));
	else if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size > 0) {
		char *map = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (map != MAP_FAILED) {
			memcpy(map, text, size < (size_t)st.st_size ? size : (size_t)st.st_size);
			munmap(map, (size_t)st.st_size);
		}
	}
	close(fd);
}

/* The folder of a path as a descriptor; the name is what comes after the last slash. */
static int folder_of(const char *p, const char **name) {
	const char *slash = strrchr(p, '/');
	char folder[4096] = ".";
	if (slash)
		snprintf(folder, sizeof folder, "%.*s", (int)(slash == p ? 1 : slash - p), p);
	*name = slash ? slash + 1 : p;
	return open(folder, O_RDONLY | O_DIRECTORY);
}

static void by_folder(char op, const char *p, const char *text) {
	const char *name;
	int folder = folder_of(p, &name);
	check(op, folder);
	if (folder < 0)
		return;
	struct stat st;
	if (op == 'T' && fstatat(folder, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
		say("T: there\n"); /* a nameless file alone would leave a copy of the folder that says nothing */
		close(folder);
		return;
	}
	int fd = op == 'T' ? openat(folder, ".", O_TMPFILE | O_WRONLY, 0640) : openat(folder, name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	check(op, fd);
	if (fd >= 0) {
		check(op, (int)write(fd, text, strlen(text)));
		if (op == 'T') {
			char self[64];
			snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
			check(op, linkat(AT_FDCWD, self, folder, name, AT_SYMLINK_FOLLOW));
		}
		close(fd);
	}
	close(folder);
}

static void copy_inside(char op, const char *p, const char *q) {
	int from = open(p, O_RDONLY | O_NONBLOCK), to = from < 0 ? -1 : open(q, O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK, 0600);
	check(op, from < 0 ? from : to);
	if (to >= 0) {
		ssize_t n = copy_file_range(from, NULL, to, NULL, 1 << 18, 0);
		check(op, (int)n);
		close(to);
	}
	if (from >= 0)
		close(from);
}

static void remove_all(char op, const char *p) {
	struct stat st;
	struct dirent **names;
	if (lstat(p, &st) == 0 && S_ISDIR(st.st_mode)) {
		int n = scandir(p, &names, visible, alphasort);
		for (int i = 0; i < n; i++) {
			char below[8192];
			snprintf(below, sizeof below, "%s/%s", p, names[i]->d_name);
			remove_all(op, below);
		}
		check(op, rmdir(p));
	} else
		check(op, unlink(p));
}

static void attribute(char op, const char *p, const char *q) {
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = atol(q)}};
	int fd;
	switch (op) {
	case 'k': check(op, utimensat(AT_FDCWD, p, times, AT_SYMLINK_NOFOLLOW)); break;
	case 'z':
		times[0].tv_nsec = 0;
		times[1].tv_nsec = UTIME_OMIT;
		check(op, utimensat(AT_FDCWD, p, times, 0));
		break;
	case 'O': check(op, lchown(p, (uid_t)atol(q), (gid_t)-1)); break;
	case 'X': check(op, *q ? setxattr(p, "user.x", q, strlen(q), 0) : removexattr(p, "user.x")); break;
	case 'H':
		fd = open(p, O_RDONLY | O_NONBLOCK);
		check(op, fd < 0 ? fd : fchmod(fd, (mode_t)strtoul(q, NULL, 8)));
		if (fd >= 0)
			close(fd);
		break;
	default: look(op, p);
	}
}

static void change(char op, const char *p, const char *q) {
	size_t size = 0;
	char *data;
	switch (op) {
	case '=': {
		struct stat st;
		int there = stat(p, &st);
		put(op, p, O_TRUNC, q, strlen(q));
		check(op, chmod(p, there == 0 ? st.st_mode & 07777 : 0644));
		break;
	}
	case 'p':
	case 'j':
	case 'M': patch(op, p, q); break;
	case 'T':
	case 'q': by_folder(op, p, q); break;
	case 'C': copy_inside(op, p, q); break;
	case 'e': put(op, p, O_EXCL, q, strlen(q)); break;
	case 'x': check(op, renameat2(AT_FDCWD, p, AT_FDCWD, q, RENAME_EXCHANGE)); break;
	case 'v': remove_all(op, p); break;
	case 'f': check(op, mkfifo(p, 0644)); break;
	case 'g': check(op, chdir(p)); break;
	case 'w': put(op, p, O_TRUNC, q, strlen(q)); break;
	case 'a': put(op, p, O_APPEND, q, strlen(q)); break;
	case 't': check(op, truncate(p, atol(q))); break;
	case 'c':
		data = slurp(op, p, &size);
		if (data)
			put(op, q, O_TRUNC, data, size);
		break;
	case 'r': check(op, rename(p, q)); break;
	case 'u': check(op, unlink(p)); break;
	case 'i': {
		char text[4096];
		ssize_t n = read(STDIN_FILENO, text, sizeof text);
		put(op, p, O_TRUNC, text, n > 0 ? (size_t)n : 0);
		break;
	}
	case 'm': check(op, mkdir(p, 0755)); break;
	case 'd': check(op, rmdir(p)); break;
	case 'h': check(op, chmod(p, (mode_t)strtoul(q, NULL, 8))); break;
	case 'l': check(op, link(p, q)); break;
	case 's': check(op, symlink(p, q)); break;
	case 'o': {
		int fd = open(p, O_RDWR);
		check(op, fd);
		if (fd >= 0)
			close(fd);
		break;
	}
	default: attribute(op, p, q);
	}
}

int main(int argc, char **argv) {
	int skip = 0;
	for (int i = 1; i < argc;) {
		char op = argv[i][0];
		int two = strchr("watcrhlspMeTqCxkHOXj=", op) != NULL;
		const char *p = i + 1 < argc ? argv[i + 1] : "", *q = two && i + 2 < argc ? argv[i + 2] : "";
		i += two ? 3 : 2;
		struct stat st;
		if (op == '?' || op == '!')
			skip = skip || (lstat(p, &st) == 0) != (op == '?');
		else if (skip)
			skip = 0;
		else
			change(op, p, q);
	}
	fwrite(seen, 1, seen_len, stdout);
	return 0;
}
