/* Reading the guest: its memory and what /proc says of its descriptors. All of it is hostile. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cleanup.h"
#include "decode.h"

enum { PAGE = 4096 };

/* Where process_vm_readv is refused (protected pages, emulated kernels) /proc/TID/mem may still work. */
static ssize_t read_by_mem(struct tracer *t, const struct task *task, uint64_t address, void *into, size_t len)
{
	char name[32];
	snprintf(name, sizeof name, "%d/mem", task->tid);
	cleanup_fd int fd = openat(t->proc_fd, name, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || address > INT64_MAX)
		return -EFAULT;
	ssize_t got = pread(fd, into, len, (off_t)address);
	return got > 0 ? got : -EFAULT;
}

ssize_t guest_read(struct tracer *t, const struct task *task, uint64_t address, void *into, size_t len)
{
	struct iovec local = { into, len };
	struct iovec remote = { (void *)(uintptr_t)address, len };

	if (len == 0)
		return 0;
	ssize_t got = process_vm_readv(task->tid, &local, 1, &remote, 1, 0);
	if (got > 0 || (got < 0 && errno == ESRCH))
		return got > 0 ? got : -ESRCH;
	return read_by_mem(t, task, address, into, len);
}

ssize_t guest_path(struct tracer *t, struct task *task, uint64_t address, char *buffer)
{
	size_t have = 0;

	/* A read never goes past a page's end before it is known to be needed: the next page may not exist. */
	while (have < PATH_MAX) {
		size_t want = PAGE - (size_t)((address + have) % PAGE);
		if (want > PATH_MAX - have)
			want = PATH_MAX - have;
		if (have == 0 && want > 512)
			want = 512; /* nearly every path is shorter */
		ssize_t got = guest_read(t, task, address + have, buffer + have, want);
		if (got < 0) {
			task->pending.unread = true;
			return got;
		}
		const char *nul = memchr(buffer + have, '\0', (size_t)got);
		if (nul != NULL)
			return nul - buffer;
		have += (size_t)got;
	}
	return -ENAMETOOLONG;
}

ssize_t proc_readlink(struct tracer *t, const struct task *task, const char *name, char *buffer, size_t size)
{
	char link[64];
	snprintf(link, sizeof link, "%d/%s", task->tid, name);
	ssize_t len = readlinkat(t->proc_fd, link, buffer, size - 1);
	if (len < 0)
		return -errno;
	buffer[len] = '\0';
	return len;
}
