/* Byte strings as small ids: equal bytes, equal id, for the life of the tracer.
 *
 * Knows nothing of paths or events. Ids are dense and start at 0, so that others can keep arrays by id. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct intern_entry {
	const char *bytes; /* NUL-terminated for the convenience of system calls; `len` counts without it */
	uint32_t len;
	uint32_t hash;
};

struct intern {
	struct intern_entry *entries;
	uint32_t count, capacity;
	uint32_t *slots; /* open addressing; id + 1, 0 is empty */
	uint32_t slot_mask;
	char *chunk; /* the arena's current chunk */
	size_t chunk_used, chunk_size;
	char **chunks;
	size_t chunk_count;
};

int intern_init(struct intern *table);
void intern_free(struct intern *table);

/* The id of these bytes, adding them when they are new. Memory that is out ends the program (abort): the
 * kernel then kills the guest, and the caller sees a tracer that died. */
uint32_t intern_id(struct intern *table, const char *bytes, size_t len);

static inline const char *intern_bytes(const struct intern *table, uint32_t id)
{
	return table->entries[id].bytes;
}

static inline uint32_t intern_len(const struct intern *table, uint32_t id)
{
	return table->entries[id].len;
}
