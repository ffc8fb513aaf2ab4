/* Fuzzing how paths are read from a guest: what is found is the string that is there, or that there is none. */
#include "../src/args.c"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	char path[PATH_MAX];

	if (size > FUZZ_ROOM)
		return 0;
	fuzz_begin();
	const char *at = fuzz_end(bytes, size);
	ssize_t len = guest_path(&fuzz_tracer, &fuzz_task, fuzz_address(at), path);
	size_t ends = strnlen((const char *)bytes, size);

	if (ends < PATH_MAX && ends < size)
		assert(len == (ssize_t)ends && memcmp(path, bytes, ends + 1) == 0 && !fuzz_task.pending.unread);
	else if (ends >= PATH_MAX)
		assert(len == -ENAMETOOLONG && !fuzz_task.pending.unread);
	else
		assert(len < 0 && len != -ENAMETOOLONG && fuzz_task.pending.unread);
	fuzz_over();
	return 0;
}
