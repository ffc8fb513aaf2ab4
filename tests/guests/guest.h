/* For guests: small programs that each show one behaviour of a tracer.
 *
 * A guest is started in an empty folder in which it may write. It does one thing, checks that the kernel did it
 * (exit 1 and a line on stderr if not), and prints the facts that a tracer must report, one a line:
 *
 *     KIND PATH            KIND as in tracer/PROTOCOL.md; PATH absolute and physical
 *     RENAME SOURCE TARGET likewise HARDLINK
 *     INCOMPLETE REASON    likewise KILLED NAME; CREDENTIALS and a blank
 *     OWN_STAT PATH        a STAT that says "own working directory"; META_MODE a META that says "mode"
 *     ! KIND PATH          must not be reported
 *
 * It exits with 77 where the machine lacks what it needs. Paths hold no blanks. */
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GUEST_FAILED = 1, GUEST_SKIPPED = 77 };

static char here[PATH_MAX];

__attribute__((constructor)) static void find_here(void)
{
	if (getcwd(here, sizeof here) == NULL)
		exit(GUEST_FAILED);
}

__attribute__((unused)) static void must_line(int holds, const char *text, int line)
{
	if (!holds) {
		fprintf(stderr, "line %d: %s: %s\n", line, text, strerror(errno));
		exit(GUEST_FAILED);
	}
}

#define must(condition) must_line((condition) ? 1 : 0, #condition, __LINE__)

__attribute__((unused)) static void expect(const char *kind, const char *path)
{
	if (path[0] == '/')
		printf("%s %s\n", kind, path);
	else if (path[0] == '\0')
		printf("%s %s\n", kind, here);
	else
		printf("%s %s/%s\n", kind, here, path);
}

__attribute__((unused)) static void expect_two(const char *kind, const char *source, const char *target)
{
	printf("%s %s/%s %s/%s\n", kind, here, source, here, target);
}

__attribute__((unused)) static void skip(const char *why)
{
	fprintf(stderr, "%s\n", why);
	exit(GUEST_SKIPPED);
}

/* A file with some content, made by the guest itself. */
__attribute__((unused)) static void put(const char *path, const char *content)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0644);

	must(fd >= 0);
	must(write(fd, content, strlen(content)) == (ssize_t)strlen(content));
	must(close(fd) == 0);
}

__attribute__((unused)) static void finish_child(pid_t child)
{
	int status;

	must(waitpid(child, &status, 0) == child);
	must(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
