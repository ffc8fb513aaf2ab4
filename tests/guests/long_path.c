/* A path of nearly PATH_MAX bytes, and a name of 255. */
#include "guest.h"

int main(void)
{
	char name[256], path[PATH_MAX];
	size_t at = 0;

	memset(name, 'n', 255);
	name[255] = '\0';
	must(mkdir(name, 0755) == 0);
	while (at < 3500) {
		memcpy(path + at, "./", 2);
		at += 2;
	}
	must(snprintf(path + at, sizeof path - at, "%s/file", name) > 0);
	must(open(path, O_WRONLY | O_CREAT, 0644) >= 0);
	snprintf(path, sizeof path, "%s/file", name);
	expect("MKDIR", name);
	expect("CREATE", path);
	must(access("nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
		    "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"
		    "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn", R_OK) < 0 && errno == ENAMETOOLONG);
	return 0;
}
