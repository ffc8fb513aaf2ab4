/* Setting an access control list sets the mode as well. */
#include "guest.h"

#include <sys/xattr.h>

struct entry {
	unsigned short tag, permissions;
	unsigned id;
};

int main(void)
{
	struct {
		unsigned version;
		struct entry entries[5];
	} list = { 2, { { 0x01, 6, -1U }, { 0x02, 4, 0 }, { 0x04, 4, -1U }, { 0x10, 4, -1U }, { 0x20, 0, -1U } } };
	struct stat st;

	put("file", "x");
	list.entries[1].id = geteuid();
	if (setxattr("file", "system.posix_acl_access", &list, sizeof list, 0) < 0)
		skip("no access control lists here");
	must(stat("file", &st) == 0 && (st.st_mode & 0777) == 0640);
	expect("META_MODE", "file");
	return 0;
}
