/* An O_PATH open reads nothing. */
#include "guest.h"

int main(void)
{
	put("file", "x");
	must(open("file", O_PATH) >= 0);
	expect("PROBE", "file");
	expect("! READ", "file");
	return 0;
}
