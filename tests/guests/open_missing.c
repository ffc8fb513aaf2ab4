/* A failed lookup reports the first component that is missing, not the last. */
#include "guest.h"

int main(void)
{
	must(open("no/such/folder/file", O_RDONLY) < 0 && errno == ENOENT);
	expect("MISSED", "no");
	expect("! MISSED", "no/such");
	expect("! MISSED", "no/such/folder/file");
	return 0;
}
