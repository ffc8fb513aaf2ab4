/* C keeps T's privileges, in a user namespace above the guest's, since it owns the mounts. So the guest must get no
 * hold of it: it can't be traced or read (not dumpable, and in a user namespace that the guest has no rights over,
 * ptrace(2) "access mode checking"), it ignores signals from within (pid_namespaces(7): init gets only those it has a
 * handler for), it has no descriptor open, and it runs no code but the loop at the end. */
#include "init.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleanup.h"
#include "guest.h"
#include "kernel.h"
#include "message.h"
#include "sandbox.h"

/* C must not outlive T. The signal is lost if T died before it was asked for, hence the second look (prctl(2)). */
static int bind_to_parent(int parent, struct failure *failure)
{
        struct pollfd died = {.fd = parent, .events = POLLIN};

        if (prctl(PR_SET_PDEATHSIG, SIGKILL) || prctl(PR_SET_DUMPABLE, 0) || prctl(PR_SET_NAME, "init"))
                return fail(failure, "init", errno, "prctl: %s", strerror(errno));
        if (RETRY(poll(&died, 1, 0)) != 0)
                _exit(1);
        return 0;
}

/* Waits for all of the sandbox's orphans, and for G. With C gone the kernel kills whatever else is left. C ends as G
 * did, as shells tell it: for T when it does not trace, and so can't see G's end itself. */
_Noreturn static void reap_until(pid_t guest)
{
        for (;;) {
                int status = 0;
                pid_t ended = RETRY(waitpid(-1, &status, __WALL));
                if (ended == guest || ended < 0)
                        _exit(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
        }
}

/* C has T's command line in its memory, which names files of the host, and /proc/1/cmdline is for everyone to read
 * (proc_pid_cmdline(5)). */
static void hide_arguments(char *const *argv)
{
        static const char title[] = "init";

        for (size_t i = 0; argv[i]; i++) {
                size_t length = strlen(argv[i]);
                memset(argv[i], 0, length);
                if (!i && length >= sizeof title)
                        memcpy(argv[i], title, sizeof title);
        }
}

_Noreturn void init_run(const struct launch_request *request, int parent, int channel)
{
        struct failure failure = {.operation = ""};
        int failed = bind_to_parent(parent, &failure);

        hide_arguments(request->argv);
        if (!failed)
                failed = sandbox_enter(request->spec, request->ids, &failure);
        pid_t guest = -1;
        if (!failed) {
                /* A user namespace below ours: no capability in it reaches a mount, a network or a process of ours. */
                guest = sys_fork(CLONE_NEWUSER | SIGCHLD, NULL);
                if (guest == 0)
                        guest_run(request->spec, request->ids, channel);
                if (guest < 0)
                        failed = fail(&failure, "userns", errno, "clone(CLONE_NEWUSER): %s", strerror(errno));
        }
        if (failed) {
                message_send(channel, MESSAGE_FAILED, &failure);
                _exit(1);
        }
        sys_close_range(0, ~0U, 0);
        reap_until(guest);
}
