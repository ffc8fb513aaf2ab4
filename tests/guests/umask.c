/* Who sets the umask has asked for it, and a failed exec tells it. */
#include "guest.h"

int main(void)
{
	must(umask(027) == 022);
	must(umask(027) == 027);
	puts("UMASK ");
	return 0;
}
