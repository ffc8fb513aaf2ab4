/* An O_TMPFILE that gets a name by linkat is a created file, both ways of naming it. */
#include "guest.h"

int main(void)
{
	char link_path[64];
	int fd = open(".", O_TMPFILE | O_RDWR, 0644);

	if (fd < 0)
		skip("no O_TMPFILE here");
	snprintf(link_path, sizeof link_path, "/proc/self/fd/%d", fd);
	must(linkat(AT_FDCWD, link_path, AT_FDCWD, "by-proc", AT_SYMLINK_FOLLOW) == 0);
	expect("MISSED", "by-proc");
	expect("CREATE", "by-proc");
	return 0;
}
