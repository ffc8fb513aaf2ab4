/* O_CREAT|O_EXCL of an existing name fails, and its existence was the reason. */
#include "guest.h"

int main(void)
{
	put("lock", "");
	must(open("lock", O_WRONLY | O_CREAT | O_EXCL, 0644) < 0 && errno == EEXIST);
	expect("PROBE", "lock");
	expect("! WRITE", "lock");
	return 0;
}
