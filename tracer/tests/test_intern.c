/* Equal bytes have one id, other bytes another, through every growth of the table; bytes may hold NULs or none. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "intern.h"

int main(void)
{
	struct intern table;
	char text[32];

	assert(intern_init(&table) == 0);
	assert(intern_id(&table, "", 0) == 0);
	assert(intern_id(&table, "a\0b", 3) == 1 && intern_id(&table, "a\0c", 3) == 2 && intern_id(&table, "a", 1) == 3);
	for (uint32_t i = 0; i < 100000; i++) {
		int len = snprintf(text, sizeof text, "/some/folder/%u", i);
		assert(intern_id(&table, text, (size_t)len) == i + 4);
	}
	for (uint32_t i = 0; i < 100000; i++) {
		int len = snprintf(text, sizeof text, "/some/folder/%u", i);
		assert(intern_id(&table, text, (size_t)len) == i + 4);
		assert(intern_len(&table, i + 4) == (uint32_t)len && strcmp(intern_bytes(&table, i + 4), text) == 0);
	}
	assert(memcmp(intern_bytes(&table, 1), "a\0b", 4) == 0);
	static char big[1 << 20];
	assert(intern_id(&table, big, sizeof big) == 100004 && intern_id(&table, big, sizeof big) == 100004);
	intern_free(&table);
	return 0;
}
