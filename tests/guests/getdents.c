/* A listed folder is listed, an opened one only probed. */
#include "guest.h"

#include <dirent.h>

int main(void)
{
	must(mkdir("listed", 0755) == 0 && mkdir("opened", 0755) == 0);
	DIR *folder = opendir("listed");
	must(folder != NULL && readdir(folder) != NULL && open("opened", O_RDONLY | O_DIRECTORY) >= 0);
	expect("LIST", "listed");
	expect("PROBE", "opened");
	expect("! LIST", "opened");
	expect("! READ", "listed");
	return 0;
}
