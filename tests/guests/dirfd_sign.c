/* AT_FDCWD that was not sign-extended (0xffffff9c) is AT_FDCWD to the kernel. */
#include "guest.h"

int main(void)
{
	put("file", "x");
	must(syscall(SYS_openat, 0xffffff9cUL, "file", O_RDONLY) >= 0);
	must(syscall(SYS_faccessat, 0xffffff9cUL, "absent", R_OK) < 0 && errno == ENOENT);
	expect("READ", "file");
	expect("MISSED", "absent");
	return 0;
}
