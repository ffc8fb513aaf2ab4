/* The number -1, by which tracers cancel a call, is no call: ENOSYS, and nothing is missing from the trace. */
#include "guest.h"

int main(void)
{
	must(syscall(-1L) < 0 && errno == ENOSYS);
	must(syscall(-1L) < 0 && errno == ENOSYS);
	expect("! INCOMPLETE", "/");
	return 0;
}
