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
	expect("META", "file");
	expect("XATTR_READ", "file");
	expect("MISSED", "absent");
	return 0;
}
