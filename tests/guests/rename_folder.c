/* After a folder was renamed, the same name may be another object, and is looked at anew. */
#include "guest.h"

int main(void)
{
	struct stat st;

	must(mkdir("a", 0755) == 0);
	put("a/x", "");
	must(stat("b/x", &st) < 0);
	must(rename("a", "b") == 0);
	must(stat("b/x", &st) == 0 && stat("a/x", &st) < 0);
	expect("MISSED", "b");
	expect_two("RENAME", "a", "b");
	expect("STAT", "b/x");
	expect("MISSED", "a");
	return 0;
}
