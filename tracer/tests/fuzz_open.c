/* Fuzzing opens: whatever flags, struct open_how and path; and whatever the kernel answers. */
#include "../src/decode_open.c"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	static const struct call_row rows[] = {
		{ .name = "openat2", .decoder = DECODE_OPENAT2, .dirfd = 0, .path = 1, .flags = 2, .dirfd2 = -1, .path2 = -1 },
		{ .name = "openat", .decoder = DECODE_OPEN, .dirfd = 0, .path = 1, .flags = 2, .dirfd2 = -1, .path2 = -1 },
		{ .name = "creat", .decoder = DECODE_OPEN, .dirfd = -1, .path = 0, .flags = -1, .dirfd2 = -1, .path2 = -1 },
	};
	struct open_how how = { 0 };

	if (size < sizeof how + 4 || size > 8192)
		return 0;
	fuzz_begin();
	struct pending *call = &fuzz_task.pending;
	call->row = &rows[bytes[0] % 3];
	memcpy(&how, bytes + 4, sizeof how);
	char *path = fuzz_end(bytes + 4 + sizeof how, size - 4 - sizeof how);
	int dirfd = bytes[1] % 2 ? AT_FDCWD : bytes[1] % 8;
	call->args[0] = call->row->path == 0 ? fuzz_address(path) : (uint64_t)dirfd;
	call->args[1] = fuzz_address(path);
	call->args[2] = call->row->decoder == DECODE_OPENAT2 ? fuzz_address(&how) : how.flags;
	call->args[3] = bytes[2] % (sizeof how + 9);
	call->flags = (uint32_t)call->args[2];
	if (!open_prepare(&fuzz_tracer, &fuzz_task))
		assert(call->args[3] > sizeof how);
	else if (open_enter(&fuzz_tracer, &fuzz_task) == AFTER_WANTS_EXIT && !call->unread) {
		open_report_early(&fuzz_tracer, &fuzz_task);
		if (bytes[3] % 3 == 0)
			open_lost(&fuzz_tracer, &fuzz_task);
		else
			open_leave(&fuzz_tracer, &fuzz_task, bytes[3] % 3 == 1 ? -ENOENT : bytes[3] % 16);
	}
	fuzz_over();
	return 0;
}
