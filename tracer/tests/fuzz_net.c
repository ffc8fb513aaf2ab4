/* Fuzzing how addresses and messages of sockets are read. */
#include "../src/decode_net.c"

#include "fuzz.h"

static const struct call_row row = { .name = "call", .path = -1, .dirfd = -1, .flags = -1, .path2 = -1, .dirfd2 = -1 };

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	if (size < 2 || size > 4096)
		return 0;
	fuzz_begin();
	struct pending *call = &fuzz_task.pending;
	uint8_t which = bytes[0], len = bytes[1];
	const char *at = fuzz_end(bytes + 2, size - 2);

	call->row = &row;
	call->args[1] = call->args[4] = fuzz_address(at);
	call->args[2] = call->args[5] = len;
	switch (which % 5) {
	case 0:
		if (connect_enter(&fuzz_tracer, &fuzz_task) == AFTER_WANTS_EXIT)
			connect_leave(&fuzz_tracer, &fuzz_task, which & 64 ? 0 : -ECONNREFUSED);
		break;
	case 1:
		if (bind_enter(&fuzz_tracer, &fuzz_task) == AFTER_WANTS_EXIT)
			bind_leave(&fuzz_tracer, &fuzz_task, which & 64 ? 0 : -EADDRINUSE);
		break;
	case 2:
		sendto_enter(&fuzz_tracer, &fuzz_task);
		break;
	case 3:
	case 4: {
		/* A header in front of the bytes, whose name they are; or the bytes as headers. */
		struct mmsghdr header = { .msg_hdr = { .msg_name = (void *)(uintptr_t)at, .msg_namelen = len } };
		call->args[1] = which & 64 ? fuzz_address(&header) : fuzz_address(at);
		call->args[2] = which & 64 ? 1 : len;
		if (which % 5 == 3)
			sendmsg_enter(&fuzz_tracer, &fuzz_task);
		else
			sendmmsg_enter(&fuzz_tracer, &fuzz_task);
		break;
	}
	default:
		break;
	}
	fuzz_over();
	return 0;
}
