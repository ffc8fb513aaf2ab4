/* A guest that carries out file operations given as arguments, and prints what it sees.
 *
 * Usage: fsops OP ARG... OP ARG...; every operation goes on after an error, which is printed as "OP: NAME-OF-ERRNO".
 *   w P S  write    a P S  append   t P N  truncate   c P Q  copy      r P Q  rename   u P  unlink
 *   m P    mkdir    d P    rmdir    h P M  chmod      l P Q  link      s T P  symlink  o P  open read-write, no write
 *   S P    lstat    L P    list     R P    read       A P    access
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
#include <sys/stat.h>
#include <unistd.h>

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
	int fd = open(path, O_WRONLY | O_CREAT | flags, 0644);
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

static void look(char op, const char *p) {
	struct stat st;
	size_t size = 0;
	char *data;
	switch (op) {
	case 'S':
		check(op, lstat(p, &st));
		if (lstat(p, &st) == 0)
			say("%s %o %lld\n", kind(st.st_mode), (unsigned)st.st_mode & 07777, S_ISREG(st.st_mode) ? (long long)st.st_size : 0LL);
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

static void change(char op, const char *p, const char *q) {
	size_t size = 0;
	char *data;
	switch (op) {
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
	default: look(op, p);
	}
}

int main(int argc, char **argv) {
	int skip = 0;
	for (int i = 1; i < argc;) {
		char op = argv[i][0];
		int two = strchr("watcrhls", op) != NULL;
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
