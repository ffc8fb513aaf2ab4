/* A call of another calling convention is refused and reported. */
#include "guest.h"

#include <sys/mman.h>

int main(void)
{
#if defined(__x86_64__)
	long result;

	/* int 0x80, number 20 (getpid of i386) */
	__asm__ volatile("int $0x80" : "=a"(result) : "a"(20) : "memory", "r8", "r9", "r10", "r11");
	must(result == -ENOSYS);
	must(syscall(0x40000000 | SYS_getpid) < 0 && errno == ENOSYS);
	puts("INCOMPLETE foreign_arch");
	return 0;
#else
	skip("x86-64 only");
#endif
}
