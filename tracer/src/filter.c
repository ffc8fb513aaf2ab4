/* See filter.h. */
#include "filter.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#define WANT_FILTER
#include "syscalls_generated.h"

int filter_install(void)
{
        const struct sock_fprog program = {
                .len = sizeof filter_program / sizeof filter_program[0],
                .filter = (struct sock_filter *)filter_program, /* the kernel only reads it */
        };
        return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0 ? -errno : 0;
}
