/* See msgpack.h; the format is https://github.com/msgpack/msgpack/blob/master/spec.md. */
#include "msgpack.h"

#include <stdlib.h>
#include <string.h>

static unsigned char *room(struct msgpack *pack, size_t len)
{
	if (pack->failed)
		return NULL;
	if (pack->capacity - pack->len < len) {
		size_t capacity = pack->capacity ? pack->capacity : 96 * 1024;
		while (capacity - pack->len < len)
			capacity *= 2;
		unsigned char *grown = realloc(pack->bytes, capacity);
		if (grown == NULL) {
			pack->failed = true;
			return NULL;
		}
		pack->bytes = grown;
		pack->capacity = capacity;
	}
	unsigned char *at = pack->bytes + pack->len;
	pack->len += len;
	return at;
}

void msgpack_reset(struct msgpack *pack, size_t reserve)
{
	pack->len = 0;
	unsigned char *at = room(pack, reserve);
	if (at != NULL)
		memset(at, 0, reserve);
}

void msgpack_free(struct msgpack *pack)
{
	free(pack->bytes);
	memset(pack, 0, sizeof *pack);
}

/* One tag byte and `width` bytes of big-endian value. */
static void tagged(struct msgpack *pack, unsigned tag, uint64_t value, unsigned width)
{
	unsigned char *at = room(pack, 1 + width);

	if (at == NULL)
		return;
	*at = (unsigned char)tag;
	for (unsigned i = 0; i < width; i++)
		at[1 + i] = (unsigned char)(value >> (8 * (width - 1 - i)));
}

void msgpack_uint(struct msgpack *pack, uint64_t value)
{
	if (value < 0x80)
		tagged(pack, (unsigned)value, 0, 0);
	else if (value <= UINT8_MAX)
		tagged(pack, 0xcc, value, 1);
	else if (value <= UINT16_MAX)
		tagged(pack, 0xcd, value, 2);
	else if (value <= UINT32_MAX)
		tagged(pack, 0xce, value, 4);
	else
		tagged(pack, 0xcf, value, 8);
}

void msgpack_int(struct msgpack *pack, int64_t value)
{
	if (value >= 0)
		msgpack_uint(pack, (uint64_t)value);
	else
		tagged(pack, 0xd3, (uint64_t)value, 8);
}

void msgpack_bool(struct msgpack *pack, bool value)
{
	tagged(pack, value ? 0xc3 : 0xc2, 0, 0);
}

static void sized(struct msgpack *pack, const char *bytes, size_t len)
{
	unsigned char *at = room(pack, len);
	if (at != NULL && len > 0)
		memcpy(at, bytes, len);
}

void msgpack_str(struct msgpack *pack, const char *bytes, size_t len)
{
	if (len < 32)
		tagged(pack, 0xa0 | (unsigned)len, 0, 0);
	else if (len <= UINT8_MAX)
		tagged(pack, 0xd9, len, 1);
	else if (len <= UINT16_MAX)
		tagged(pack, 0xda, len, 2);
	else
		tagged(pack, 0xdb, len, 4);
	sized(pack, bytes, len);
}

void msgpack_bin(struct msgpack *pack, const char *bytes, size_t len)
{
	if (len <= UINT8_MAX)
		tagged(pack, 0xc4, len, 1);
	else if (len <= UINT16_MAX)
		tagged(pack, 0xc5, len, 2);
	else
		tagged(pack, 0xc6, len, 4);
	sized(pack, bytes, len);
}

void msgpack_array(struct msgpack *pack, uint32_t count)
{
	if (count < 16)
		tagged(pack, 0x90 | count, 0, 0);
	else if (count <= UINT16_MAX)
		tagged(pack, 0xdc, count, 2);
	else
		tagged(pack, MSGPACK_ARRAY32, count, 4);
}
