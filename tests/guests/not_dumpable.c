/* A process that makes itself undumpable is traced like any other. */
#include "guest.h"

#include <sys/prctl.h>

int main(void)
{
	must(prctl(PR_SET_DUMPABLE, 0) == 0);
	put("file", "x");
	must(open("file", O_RDONLY) >= 0);
	expect("CREATE", "file");
	expect("READ", "file");
	return 0;
}
