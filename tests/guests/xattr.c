/* Extended attributes: reading and setting, by name and by descriptor. */
#include "guest.h"

#include <sys/xattr.h>

int main(void)
{
	char value[8];

	put("file", "x");
	if (setxattr("file", "user.a", "1", 1, 0) < 0)
		skip("no user xattrs here");
	must(getxattr("file", "user.a", value, sizeof value) == 1);
	must(lgetxattr("absent", "user.a", value, sizeof value) < 0);
	put("other", "x");
	put("third", "x");
	must(removexattr("other", "user.a") < 0);
	int fd = open("third", O_RDONLY);
	must(fd >= 0 && fsetxattr(fd, "user.a", "1", 1, XATTR_REPLACE) < 0);
	expect("META", "file");
	expect("XATTR_READ", "other");
	expect("XATTR_READ", "third");
	expect("! META", "other");
	expect("META", "third");
	expect("XATTR_READ", "file");
	expect("MISSED", "absent");
	return 0;
}
