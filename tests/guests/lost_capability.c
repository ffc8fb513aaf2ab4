/* Who gives up capabilities for the next exec is no longer the user that it was. */
#include "guest.h"

#include <linux/capability.h>
#include <sys/prctl.h>

int main(void)
{
	if (geteuid() != 0)
		return 0; /* no capabilities to give up */
	must(prctl(PR_SET_NAME, "renamed") == 0);
	must(prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE) == 0);
	puts("CREDENTIALS ");
	return 0;
}
