/* The stream: HELLO first, PATH before its use, a repeated observation once, every mutation, END; errors stick. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "out.h"
#include "syscalls_generated.h"

static size_t stream(int fd, unsigned char *bytes, size_t size)
{
	ssize_t got = pread(fd, bytes, size, 0);

	assert(got >= 0);
	return (size_t)got;
}

static void order_and_repetition(void)
{
	static const unsigned char expected[] =
		"\x93\x00\x01\xa6" "x86_64"         /* HELLO */
		"\x93\x01\x01\xc4\x02/b"            /* PATH 1: only what is used is announced */
		"\x92\x0a\x01"                      /* READ */
		"\x93\x0b\x01\x00\x93\x0b\x01\x01"  /* STAT, and STAT of the working directory */
		"\x92\x14\x01\x92\x14\x01"          /* CREATE twice */
		"\x92\x0a\x01"                      /* READ again, after out_forget() */
		"\x93\x28\xa4" "spam\xc4\x01x"      /* INCOMPLETE once */
		"\x93\x3c\x05\x06";                 /* END */
	unsigned char bytes[4096];
	int fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	struct out *out = out_new(fd);

	assert(fd >= 0 && out != NULL);
	assert(out_path(out, "/a", 2) == 0 && out_path(out, "/b", 2) == 1);
	out_saw(out, EV_READ, 1);
	out_saw(out, EV_READ, 1);
	assert(out_was_seen(out, EV_READ, 1) && !out_was_seen(out, EV_LIST, 1));
	out_saw(out, EV_STAT, 1);
	out_saw_stat(out, 1, true);
	out_saw_stat(out, 1, false);
	out_did(out, EV_CREATE, 1);
	out_did(out, EV_CREATE, 1);
	out_forget(out);
	out_saw(out, EV_READ, 1);
	out_incomplete(out, "spam", "x", 1);
	out_incomplete(out, "spam", "x", 1);
	assert(out_end(out, 5, 6) == 0);
	size_t len = stream(fd, bytes, sizeof bytes);
	assert(len == 9 + sizeof expected - 1);
	assert(bytes[0] == len - 4 && bytes[1] == 0 && bytes[4] == 0xdd && bytes[8] == 10);
	assert(memcmp(bytes + 9, expected, sizeof expected - 1) == 0);
	out_free(out);
	close(fd);
}

static void frames(void)
{
	static unsigned char bytes[1 << 20];
	int fd = open("/tmp", O_TMPFILE | O_RDWR, 0600);
	struct out *out = out_new(fd);
	unsigned count = 0, events = 0;

	assert(fd >= 0 && out != NULL);
	for (int i = 0; i < 100000; i++)
		out_credentials(out, 1000 + i);
	assert(out_end(out, 0, 0) == 0);
	size_t len = stream(fd, bytes, sizeof bytes), at = 0;
	while (at < len) {
		at += 4 + ((size_t)bytes[at] | (size_t)bytes[at + 1] << 8 | (size_t)bytes[at + 2] << 16);
		count++;
	}
	assert(at == len && count > 5);
	events = (unsigned)(bytes[5] << 24 | bytes[6] << 16 | bytes[7] << 8 | bytes[8]);
	assert(events > 1000 && events < 100000);
	out_free(out);
	close(fd);
}

static void broken(void)
{
	int pair[2];
	struct out *out;

	assert(pipe(pair) == 0 && close(pair[0]) == 0);
	out = out_new(pair[1]);
	assert(out != NULL && out_error(out) == 0);
	assert(out_flush(out) == -EPIPE && out_error(out) == -EPIPE);
	out_credentials(out, 1);
	assert(out_end(out, 0, 0) == -EPIPE);
	out_free(out);
	close(pair[1]);
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	order_and_repetition();
	frames();
	broken();
	return 0;
}
