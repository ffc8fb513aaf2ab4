/* A number that no table knows makes the action incomplete. */
#include "guest.h"

int main(void)
{
	must(syscall(1000) < 0 && errno == ENOSYS);
	puts("INCOMPLETE unknown_syscall");
	return 0;
}
