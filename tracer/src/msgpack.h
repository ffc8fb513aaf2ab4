/* A MessagePack writer into a growing buffer: only what the event stream needs.
 *
 * Out of memory is remembered in `failed`; further writes do nothing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MSGPACK_ARRAY32 = 0xdd };

struct msgpack {
	unsigned char *bytes;
	size_t len, capacity;
	bool failed;
};

/* Empties the buffer and leaves `reserve` bytes at its front for the caller to fill. */
void msgpack_reset(struct msgpack *pack, size_t reserve);
void msgpack_free(struct msgpack *pack);
void msgpack_uint(struct msgpack *pack, uint64_t value);
void msgpack_int(struct msgpack *pack, int64_t value);
void msgpack_bool(struct msgpack *pack, bool value);
void msgpack_str(struct msgpack *pack, const char *bytes, size_t len);
void msgpack_bin(struct msgpack *pack, const char *bytes, size_t len);
void msgpack_array(struct msgpack *pack, uint32_t count);
