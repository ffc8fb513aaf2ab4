/* A renamed file is read: its content goes on under the new name. */
#include "guest.h"

int main(void)
{
	put("old", "x");
	put("there", "y");
	must(rename("old", "there") == 0);
	must(rename("gone", "there") < 0 && errno == ENOENT);
	expect("READ", "old");
	expect("STAT", "old");
	expect("PROBE", "there");
	expect_two("RENAME", "old", "there");
	expect("MISSED", "gone");
	return 0;
}
