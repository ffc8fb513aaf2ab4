/* See filter.h. */
#include "filter.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

static struct sock_filter filter_program[] = {
#include "filter_generated.h"
};

int filter_install(void)
{
	const struct sock_fprog program = {
		.len = sizeof filter_program / sizeof filter_program[0],
		.filter = filter_program,
	};
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0 ? -errno : 0;
}
