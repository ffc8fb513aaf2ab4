/* T mostly sleeps in wait(2), which can't wait for a descriptor too. So the kernel is asked for a signal when
 * CONTROL_FD becomes readable (O_ASYNC, fcntl(2)), and the handler itself does the killing: it needs no return to any
 * loop, and there is no moment between a check and a sleep in which the wish could get lost. */
#include "control.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "kernel.h"

/* A signal handler has no argument to carry these. */
static volatile sig_atomic_t watched_control = -1;
static volatile sig_atomic_t watched_init = -1;
static volatile sig_atomic_t fired;

static void kill_if_closed(void)
{
        struct pollfd control = {.fd = watched_control, .events = POLLIN};

        if (poll(&control, 1, 0) == 1) {
                fired = 1;
                sys_pidfd_send_signal(watched_init, SIGKILL);
        }
}

static void on_sigio(int signal)
{
        int saved = errno;

        (void)signal;
        kill_if_closed();
        errno = saved;
}

int control_watch(int control_fd, int init_pidfd)
{
        struct sigaction action = {.sa_handler = on_sigio, .sa_flags = SA_RESTART};
        struct stat what;

        if (fstat(control_fd, &what))
                return -errno;
        if (!S_ISFIFO(what.st_mode) && !S_ISSOCK(what.st_mode))
                return -EINVAL; /* O_ASYNC would be accepted and do nothing, fcntl(2) */
        watched_control = control_fd;
        watched_init = init_pidfd;
        if (sigaction(SIGIO, &action, NULL))
                return -errno;
        sigset_t only;
        sigemptyset(&only);
        sigaddset(&only, SIGIO);
        if (sigprocmask(SIG_UNBLOCK, &only, NULL))
                return -errno;
        int flags = fcntl(control_fd, F_GETFL);
        if (flags < 0 || fcntl(control_fd, F_SETOWN, getpid()) || fcntl(control_fd, F_SETFL, flags | O_ASYNC))
                return -errno;
        kill_if_closed(); /* it may have ended before O_ASYNC was on */
        return 0;
}

bool control_fired(void)
{
        return fired;
}
