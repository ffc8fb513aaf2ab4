/* O_CREAT through a dangling symlink makes its target. */
#include "guest.h"

int main(void)
{
	must(symlink("target", "link") == 0);
	must(open("link", O_WRONLY | O_CREAT, 0644) >= 0);
	expect("LINK", "link");
	expect("MISSED", "target");
	expect("CREATE", "target");
	expect("! CREATE", "link");
	return 0;
}
