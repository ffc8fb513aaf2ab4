/* Fuzzing how arguments and environment of an exec are read: the input is memory of a guest, and says what its array of
 * pointers holds. What is read is what a plain reader finds, or nothing. */
#include "../src/decode_exec.c"

#include "fuzz.h"

enum { MOST_POINTERS = 200 };

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	static uint64_t array[MOST_POINTERS + 1];
	size_t count = 0, total = 0;
	struct text text = { 0 };
	bool readable = true;

	if (size < 1 || size > 16 * 1024)
		return 0;
	fuzz_begin();
	/* Pointers lie at the front of the readable room and strings at its end. */
	const char *strings = fuzz_end(bytes, size);
	size_t pointers = bytes[0] % MOST_POINTERS;
	for (; count < pointers && (count + 1) * 2 < size; count++) {
		size_t offset = (bytes[count * 2] | (size_t)bytes[count * 2 + 1] << 8) % (size + 2);
		array[count] = fuzz_address(strings) + offset; /* the last two are outside */
		if (offset >= size || strnlen((const char *)bytes + offset, size - offset) == size - offset)
			readable = false;
		else
			total += strlen((const char *)bytes + offset) + 1;
	}
	array[count] = 0;
	bool complete = read_strings(&fuzz_tracer, &fuzz_task, fuzz_address(array), &text);
	assert(complete == readable);
	if (complete)
		assert(text.len == (total > 0 ? total - 1 : 0));
	for (size_t i = 0, at = 0; complete && i < count; i++) {
		const char *one = (const char *)bytes + (array[i] - fuzz_address(strings));
		assert(memcmp(text.bytes + at, one, strlen(one)) == 0);
		at += strlen(one) + 1;
	}
	free(text.bytes);
	/* And whatever bytes as pointers. */
	text = (struct text){ 0 };
	read_strings(&fuzz_tracer, &fuzz_task, fuzz_address(strings), &text);
	free(text.bytes);
	fuzz_over();
	return 0;
}
