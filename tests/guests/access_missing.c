/* access, faccessat2 and statx of an absent name are reads of its absence. */
#include "guest.h"

int main(void)
{
	struct statx stx;

	must(access("one", R_OK) < 0);
	must(syscall(SYS_faccessat2, AT_FDCWD, "two", R_OK, AT_EACCESS) < 0);
	must(statx(AT_FDCWD, "three", 0, STATX_ALL, &stx) < 0);
	put("four", "");
	must(access("four", R_OK) == 0);
	expect("MISSED", "one");
	expect("MISSED", "two");
	expect("MISSED", "three");
	expect("PROBE", "four");
	return 0;
}
