/* Every way to ask what is allowed is a probe, faccessat2 too; the missing is missed. */
#include "guest.h"

static long access_at(const char *path, int flags)
{
	return syscall(439, AT_FDCWD, path, R_OK, flags); /* faccessat2 */
}

int main(void)
{
	put("file", "x");
	must(symlink("gone", "dangling") == 0);
	must(access_at("file", AT_EACCESS) == 0);
	must(access_at("dangling", AT_SYMLINK_NOFOLLOW) == 0);
	must(access_at("dangling", 0) < 0 && errno == ENOENT);
	must(access_at("", 0) < 0 && errno == ENOENT);
	int fd = open("file", O_PATH);
	must(syscall(439, fd, "", F_OK, AT_EMPTY_PATH) == 0);
	must(faccessat(AT_FDCWD, "absent", F_OK, 0) < 0);
	expect("PROBE", "file");
	expect("PROBE", "dangling");
	expect("LINK", "dangling");
	expect("MISSED", "gone");
	expect("MISSED", "absent");
	return 0;
}
