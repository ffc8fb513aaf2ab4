/* rmdir lists; a folder that is not empty stays. */
#include "guest.h"

int main(void)
{
	must(mkdir("full", 0755) == 0 && mkdir("empty", 0755) == 0);
	put("full/file", "");
	must(rmdir("full") < 0 && errno == ENOTEMPTY);
	must(rmdir("empty") == 0);
	expect("LIST", "full");
	expect("LIST", "empty");
	expect("REMOVE", "empty");
	expect("! REMOVE", "full");
	return 0;
}
