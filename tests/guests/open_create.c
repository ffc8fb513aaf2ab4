/* O_CREAT of a name that is absent: the absence is an input, the file is made. */
#include "guest.h"

int main(void)
{
	put("new", "x");
	expect("MISSED", "new");
	expect("CREATE", "new");
	expect("! READ", "new");
	return 0;
}
