/* See filter.h. */
#include "filter.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

static struct sock_filter filter_program[] = {
#include "filter_generated.h"
};

/* Linux 6.6 wakes who waits for a notification on the CPU of the caller. Before that one costs more than a stop. */
static bool kernel_wakes_in_place(void)
{
	struct utsname name;
	int major = 0, minor = 0;

	return uname(&name) == 0 && sscanf(name.release, "%d.%d", &major, &minor) == 2 &&
	       (major > 6 || (major == 6 && minor >= 6));
}

/* Every notification becomes the stop that it stands for. */
static void stop_always(void)
{
	for (size_t i = 0; i < sizeof filter_program / sizeof filter_program[0]; i++) {
		struct sock_filter *insn = &filter_program[i];
		if (insn->code == (BPF_RET | BPF_K) && (insn->k & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_USER_NOTIF)
			insn->k = SECCOMP_RET_TRACE | (insn->k & SECCOMP_RET_DATA);
	}
}

int filter_install(bool notify, int *listener)
{
	const struct sock_fprog program = {
		.len = sizeof filter_program / sizeof filter_program[0],
		.filter = filter_program,
	};

	*listener = -1;
	if (notify && kernel_wakes_in_place())
		*listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
	if (*listener >= 0)
		return 0;
	stop_always(); /* EBUSY: we run under somebody's listener, and there can be only one */
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0 ? -errno : 0;
}
