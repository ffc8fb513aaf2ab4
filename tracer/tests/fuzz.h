/* For the fuzzers of what reads a guest: this process plays the guest, so its own memory is the guest's.
 *
 * `fuzz_end()` gives a copy of bytes that ends right before a page that nobody may read: to read past it fails, as at the
 * end of a guest's mapping. */
#pragma once

#include <assert.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../src/decode.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

enum { FUZZ_ROOM = 64 * 1024 };

static struct tracer fuzz_tracer;
static struct task fuzz_task;

__attribute__((unused)) static void fuzz_begin(void)
{
	static int proc = -1, nowhere = -1;

	if (proc < 0) {
		proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
		nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
	}
	memset(&fuzz_tracer, 0, sizeof fuzz_tracer);
	memset(&fuzz_task, 0, sizeof fuzz_task);
	fuzz_tracer.proc_fd = proc;
	fuzz_tracer.generation = 1;
	fuzz_tracer.out = out_new(nowhere);
	fuzz_task.tid = getpid();
	assert(fuzz_tracer.out != NULL && tasks_init(&fuzz_tracer.tasks) == 0);
}

__attribute__((unused)) static void fuzz_over(void)
{
	assert(out_end(fuzz_tracer.out, 0, 0) == 0);
	task_drop_pending(&fuzz_task);
	walk_free(&fuzz_tracer);
	order_free(&fuzz_tracer.order);
	tasks_free(&fuzz_tracer.tasks);
	out_free(fuzz_tracer.out);
}

__attribute__((unused)) static char *fuzz_end(const void *bytes, size_t size)
{
	static char *room;

	if (room == NULL) {
		room = mmap(NULL, FUZZ_ROOM + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		assert(room != MAP_FAILED && munmap(room + FUZZ_ROOM, 4096) == 0);
	}
	assert(size <= FUZZ_ROOM);
	if (size > 0)
		memcpy(room + FUZZ_ROOM - size, bytes, size);
	return room + FUZZ_ROOM - size;
}

__attribute__((unused)) static uint64_t fuzz_address(const void *at)
{
	return (uint64_t)(uintptr_t)at;
}
