/* See intern.h. */
#include "intern.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_SLOTS = 4096, CHUNK_SIZE = 256 * 1024 };

static uint32_t hash_bytes(const char *bytes, size_t len)
{
	/* FNV-1a, eight bytes at a time: paths are short and the table is rehashed rarely. */
	uint64_t hash = 0xcbf29ce484222325u ^ len;

	while (len >= 8) {
		uint64_t word;
		memcpy(&word, bytes, 8);
		hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
		hash ^= hash >> 32;
		bytes += 8;
		len -= 8;
	}
	while (len-- > 0)
		hash = (hash ^ (unsigned char)*bytes++) * 0x100000001b3u;
	hash ^= hash >> 29;
	return (uint32_t)(hash ^ (hash >> 32));
}

int intern_init(struct intern *table)
{
	memset(table, 0, sizeof *table);
	table->slots = calloc(FIRST_SLOTS, sizeof *table->slots);
	if (table->slots == NULL)
		return -ENOMEM;
	table->slot_mask = FIRST_SLOTS - 1;
	return 0;
}

void intern_free(struct intern *table)
{
	for (size_t i = 0; i < table->chunk_count; i++)
		free(table->chunks[i]);
	free(table->chunks);
	free(table->slots);
	free(table->entries);
	memset(table, 0, sizeof *table);
}

static void *must(void *memory)
{
	if (memory == NULL)
		abort();
	return memory;
}

static void rehash(struct intern *table)
{
	uint32_t mask = table->slot_mask * 2 + 1;
	uint32_t *slots = must(calloc((size_t)mask + 1, sizeof *slots));

	for (uint32_t id = 0; id < table->count; id++) {
		uint32_t at = table->entries[id].hash & mask;
		while (slots[at] != 0)
			at = (at + 1) & mask;
		slots[at] = id + 1;
	}
	free(table->slots);
	table->slots = slots;
	table->slot_mask = mask;
}

static const char *keep(struct intern *table, const char *bytes, size_t len)
{
	if (table->chunk == NULL || table->chunk_size - table->chunk_used < len + 1) {
		size_t size = len + 1 > CHUNK_SIZE ? len + 1 : CHUNK_SIZE;
		table->chunks = must(realloc(table->chunks, (table->chunk_count + 1) * sizeof *table->chunks));
		table->chunk = must(malloc(size));
		table->chunks[table->chunk_count++] = table->chunk;
		table->chunk_size = size;
		table->chunk_used = 0;
	}
	char *copy = table->chunk + table->chunk_used;
	if (len > 0)
		memcpy(copy, bytes, len);
	copy[len] = '\0';
	table->chunk_used += len + 1;
	return copy;
}

uint32_t intern_id(struct intern *table, const char *bytes, size_t len)
{
	uint32_t hash = hash_bytes(bytes, len);
	uint32_t at = hash & table->slot_mask;

	for (; table->slots[at] != 0; at = (at + 1) & table->slot_mask) {
		const struct intern_entry *entry = &table->entries[table->slots[at] - 1];
		if (entry->hash == hash && entry->len == len && memcmp(entry->bytes, bytes, len) == 0)
			return table->slots[at] - 1;
	}
	if (table->count == table->capacity) {
		table->capacity = table->capacity ? table->capacity * 2 : 1024;
		table->entries = must(realloc(table->entries, table->capacity * sizeof *table->entries));
	}
	uint32_t id = table->count++;
	table->entries[id] = (struct intern_entry){ keep(table, bytes, len), (uint32_t)len, hash };
	table->slots[at] = id + 1;
	if (table->count * 2 > table->slot_mask)
		rehash(table);
	return id;
}
