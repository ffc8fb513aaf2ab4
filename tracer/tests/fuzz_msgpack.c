/* Fuzzing the writer of MessagePack: what a plain reader finds is what was written. */
#include "../src/msgpack.c"

#include <assert.h>

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

static uint64_t take(const unsigned char **at, unsigned width)
{
	uint64_t value = 0;

	while (width-- > 0)
		value = value << 8 | *(*at)++;
	return value;
}

static int64_t signed_one(uint64_t value)
{
	return (int64_t)(value >> 1) - (1 << 20);
}

/* The number that stands at `at`, signed where its form is. */
static int64_t number(const unsigned char **at)
{
	unsigned char form = *(*at)++;

	if (form < 0x80)
		return form;
	if (form >= 0xe0)
		return (int8_t)form;
	switch (form) {
	case 0xcc:
		return (int64_t)take(at, 1);
	case 0xcd:
		return (int64_t)take(at, 2);
	case 0xce:
		return (int64_t)take(at, 4);
	case 0xcf:
		return (int64_t)take(at, 8);
	case 0xd0:
		return (int8_t)take(at, 1);
	case 0xd1:
		return (int16_t)take(at, 2);
	case 0xd2:
		return (int32_t)take(at, 4);
	case 0xd3:
		return (int64_t)take(at, 8);
	default:
		assert(!"a form of a number");
		return 0;
	}
}

/* The length of the text or bytes that stand at `at`. */
static size_t length(const unsigned char **at)
{
	unsigned char form = *(*at)++;

	if ((form & 0xe0) == 0xa0)
		return form & 0x1f;
	switch (form) {
	case 0xc4:
	case 0xd9:
		return take(at, 1);
	case 0xc5:
	case 0xda:
		return take(at, 2);
	case 0xc6:
	case 0xdb:
		return take(at, 4);
	default:
		assert(!"a form of a text");
		return 0;
	}
}

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	struct msgpack pack = { 0 };
	const unsigned char *end = bytes + size, *from;

	msgpack_reset(&pack, 4);
	for (from = bytes; end - from >= 9; from += 9) {
		uint64_t value;
		memcpy(&value, from + 1, 8);
		value >>= from[0] & 63;
		size_t len = (size_t)(value % (uint64_t)(end - from));
		if (from[0] & 64)
			msgpack_uint(&pack, value);
		else
			msgpack_int(&pack, signed_one(value));
		if (from[0] & 128)
			msgpack_bin(&pack, (const char *)from, len);
		else
			msgpack_str(&pack, (const char *)from, len);
	}
	assert(!pack.failed);
	const unsigned char *at = pack.bytes + 4;
	for (from = bytes; end - from >= 9; from += 9) {
		uint64_t value;
		memcpy(&value, from + 1, 8);
		value >>= from[0] & 63;
		size_t len = (size_t)(value % (uint64_t)(end - from));
		int64_t found = number(&at);
		assert(from[0] & 64 ? (uint64_t)found == value : found == signed_one(value));
		assert(length(&at) == len && memcmp(at, from, len) == 0);
		at += len;
	}
	assert(at == pack.bytes + pack.len);
	msgpack_free(&pack);
	return 0;
}
