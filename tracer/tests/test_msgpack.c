/* Every width of MessagePack's integers, strings and arrays begins at the right value, and has the right bytes. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "msgpack.h"

static void is(const struct msgpack *pack, const char *bytes, size_t len)
{
	assert(!pack->failed && pack->len == len && memcmp(pack->bytes, bytes, len) == 0);
}

static void integers(struct msgpack *pack)
{
	static const struct {
		uint64_t value;
		const char *bytes;
		size_t len;
	} cases[] = {
		{0, "\x00", 1},
		{0x7f, "\x7f", 1},
		{0x80, "\xcc\x80", 2},
		{0xff, "\xcc\xff", 2},
		{0x100, "\xcd\x01\x00", 3},
		{0xffff, "\xcd\xff\xff", 3},
		{0x10000, "\xce\x00\x01\x00\x00", 5},
		{0xffffffff, "\xce\xff\xff\xff\xff", 5},
		{0x100000000, "\xcf\x00\x00\x00\x01\x00\x00\x00\x00", 9},
		{UINT64_MAX, "\xcf\xff\xff\xff\xff\xff\xff\xff\xff", 9},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		msgpack_reset(pack, 0);
		msgpack_uint(pack, cases[i].value);
		is(pack, cases[i].bytes, cases[i].len);
	}
	msgpack_reset(pack, 0);
	msgpack_int(pack, -2);
	is(pack, "\xd3\xff\xff\xff\xff\xff\xff\xff\xfe", 9);
	msgpack_reset(pack, 0);
	msgpack_int(pack, 5);
	is(pack, "\x05", 1);
}

static void strings(struct msgpack *pack)
{
	char *text = calloc(1, 70000);

	assert(text != NULL);
	msgpack_reset(pack, 0);
	msgpack_str(pack, "hi", 2);
	msgpack_bin(pack, "\0\xff", 2);
	is(pack, "\xa2hi\xc4\x02\0\xff", 7);
	msgpack_reset(pack, 0);
	msgpack_str(pack, text, 32);
	assert(pack->len == 34 && pack->bytes[0] == 0xd9 && pack->bytes[1] == 32);
	msgpack_reset(pack, 0);
	msgpack_bin(pack, text, 256);
	assert(pack->len == 259 && memcmp(pack->bytes, "\xc5\x01\x00", 3) == 0);
	msgpack_reset(pack, 0);
	msgpack_bin(pack, text, 70000);
	assert(pack->len == 70005 && memcmp(pack->bytes, "\xc6\x00\x01\x11\x70", 5) == 0);
	free(text);
}

static void arrays(struct msgpack *pack)
{
	msgpack_reset(pack, 3);
	msgpack_array(pack, 15);
	msgpack_array(pack, 16);
	msgpack_array(pack, 65536);
	msgpack_bool(pack, true);
	msgpack_bool(pack, false);
	is(pack, "\0\0\0\x9f\xdc\x00\x10\xdd\x00\x01\x00\x00\xc3\xc2", 14);
}

int main(void)
{
	struct msgpack pack = {0};

	integers(&pack);
	strings(&pack);
	arrays(&pack);
	msgpack_free(&pack);
	return 0;
}
