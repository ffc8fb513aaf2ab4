/* Renames that fail, as package managers try them, tell what made them fail, and change nothing. */
#include "guest.h"

int main(void)
{
	must(mkdir("full", 0755) == 0 && mkdir("other", 0755) == 0 && mkdir("empty", 0755) == 0);
	put("full/file", "x");
	put("plain", "y");
	must(rename("other", "full") < 0 && errno == ENOTEMPTY);
	must(rename("other", "plain") < 0 && errno == ENOTDIR);
	must(rename("plain", "other") < 0 && errno == EISDIR);
	must(rename("absent", "plain") < 0 && errno == ENOENT);
	must(rename("plain", "nowhere/plain") < 0 && errno == ENOENT);
	must(syscall(SYS_renameat2, AT_FDCWD, "plain", AT_FDCWD, "full", 1) < 0 && errno == EEXIST);
	must(rename("full", "full/below") < 0 && errno == EINVAL);
	must(rename("other", "empty") == 0);
	expect("LIST", "full");
	expect("PROBE", "plain");
	expect("MISSED", "absent");
	expect("MISSED", "nowhere");
	expect_two("RENAME", "other", "empty");
	printf("! RENAME %s/other %s/full\n! RENAME %s/plain %s/full\n", here, here, here, here);
	return 0;
}
