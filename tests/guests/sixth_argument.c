/* The tracer asks for a stop by the argument that lookups and opens don't have: whatever a program has there changes
 * nothing of what is told, and is there after the call as before it. */
#include "guest.h"

#include <pthread.h>

static const unsigned long given[] = {0, 1, 0x6d756c6c6967616e, 0x6967616e, 0x6d756c6c00000000, ~0UL};

static long call(long number, long first, const void *second, long third, unsigned long sixth)
{
#if defined(__x86_64__)
	register unsigned long r9 __asm__("r9") = sixth;
	register long r10 __asm__("r10") = 0, r8 __asm__("r8") = 0;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result), "+r"(r9)
			 : "a"(number), "D"(first), "S"(second), "d"(third), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	must(r9 == sixth);
	return result;
#else
	(void)sixth;
	return syscall(number, first, second, third, 0);
#endif
}

static void *idle(void *unused)
{
	pause();
	return unused;
}

static void all(const char *prefix)
{
	char name[32];
	struct stat st;

	for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
		snprintf(name, sizeof name, "%s%zu", prefix, i);
		put(name, "x");
		must(stat(name, &st) == 0);
		long fd = call(SYS_openat, AT_FDCWD, name, O_RDONLY, given[i]);
		must(fd >= 0 && close((int)fd) == 0);
		snprintf(name, sizeof name, "%sno%zu", prefix, i);
		must(call(SYS_openat, AT_FDCWD, name, O_RDONLY, given[i]) == -ENOENT);
		expect("MISSED", name);
		snprintf(name, sizeof name, "%snot%zu", prefix, i);
		must(call(SYS_faccessat, AT_FDCWD, name, R_OK, given[i]) == -ENOENT);
		expect("MISSED", name);
		must(call(SYS_openat, AT_FDCWD, (const void *)8, O_RDONLY, given[i]) == -EFAULT);
		must(call(SYS_faccessat, AT_FDCWD, (const void *)8, R_OK, given[i]) == -EFAULT);
	}
}

int main(void)
{
	pthread_t other;

	all("a");
	must(pthread_create(&other, NULL, idle, NULL) == 0);
	all("b"); /* an open of one of two threads is told when it is done */
	return 0;
}
