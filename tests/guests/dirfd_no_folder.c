/* A descriptor of a file or of a symlink is no folder; what follows by the same words is looked up all the same. */
#include "guest.h"

#include <sys/xattr.h>

int main(void)
{
	char names[16];

	must(mkdir("d", 0755) == 0 && symlink("d", "link") == 0);
	put("d/file", "x");
	put("plain", "x");
	int link = open("link", O_PATH | O_NOFOLLOW), plain = open("plain", O_PATH);
	must(link >= 0 && plain >= 0);
	must(faccessat(link, "file", R_OK, 0) < 0 && errno == ENOTDIR);
	must(faccessat(plain, ".", R_OK, 0) < 0 && errno == ENOTDIR);
	must(access("link/file", R_OK) == 0);
	must(listxattr("plain/.", names, sizeof names) < 0 && errno == ENOTDIR);
	expect("PROBE", "link");
	expect("PROBE", "plain");
	expect("LINK", "link");
	expect("PROBE", "d/file");
	expect("! PROBE", "link/file");
	expect("! XATTR_READ", "plain");
	return 0;
}
