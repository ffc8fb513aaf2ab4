/* Fuzzing what the tracer reads of a program: shebang lines and ELF headers, which are the guest's bytes.
 *
 *     clang -fsanitize=fuzzer,address,undefined -std=gnu17 -D_GNU_SOURCE -Isrc tests/fuzz_exec.c -o build/fuzz_exec \
 *         $(ls src/[a-ln-z]*.c src/mounts.c src/message.c src/msgpack.c | grep -v -e decode_exec.c)
 *
 * Any property that fails aborts. */
#include "../src/decode_exec.c"

#include <assert.h>
#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *bytes, size_t size)
{
	const char *name = NULL;
	char path[PATH_MAX];
	size_t head = size < HEAD_SIZE ? size : HEAD_SIZE;
	size_t len = shebang((const char *)bytes, head, &name);

	assert(len == 0 || (name >= (const char *)bytes && name + len <= (const char *)bytes + head));
	cleanup_fd int fd = memfd_create("program", MFD_CLOEXEC);
	assert(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
	len = elf_interpreter(fd, (const char *)bytes, head, path);
	assert(len <= PATH_MAX && strnlen(path, len) == len);
	return 0;
}
