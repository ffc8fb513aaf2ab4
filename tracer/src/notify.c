/* See notify.h.
 *
 * T sleeps in the ioctl that receives, and must wake for what wait(2) has to tell as well. Waiting for both by poll(2)
 * would cost one more call per notification. So SIGCHLD has a handler, and the moment between the last look at its flag
 * and the sleep is covered by a jump: the handler leaves the ioctl for good, wherever it is. A notification that it had
 * received by then is in `request` already. */
#include "notify.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cleanup.h"
#include "decode.h"

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS /* Linux 6.6 */
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#endif

/* A signal handler has no argument to carry these. */
static sigjmp_buf awake;
static volatile sig_atomic_t asleep, child_tells;

static void on_child(int signal)
{
	(void)signal;
	child_tells = 1;
	if (asleep) {
		asleep = 0;
		siglongjmp(awake, 1);
	}
}

bool notify_row(const struct call_row *row)
{
	switch ((int)row->decoder) {
	case DECODE_LOOK:
	case DECODE_LOOK_FD:
	case DECODE_LIST:
	case DECODE_OPEN:
		return true;
	default:
		return false;
	}
}

int notify_start(struct notify *n, int listener)
{
	/* SA_NODEFER: the handler is left by a jump that restores no mask. */
	struct sigaction action = { .sa_handler = on_child, .sa_flags = SA_RESTART | SA_NODEFER };

	n->fd = listener;
	if (listener < 0)
		return 0;
	child_tells = 1; /* what came before the handler did */
	if (sigaction(SIGCHLD, &action, NULL) < 0)
		return -errno;
	notify_in_place(n, true);
	return 0;
}

void notify_in_place(struct notify *n, bool in_place)
{
	if (n == NULL || n->fd < 0 || n->in_place == in_place)
		return;
	n->in_place = in_place;
	(void)ioctl(n->fd, SECCOMP_IOCTL_NOTIF_SET_FLAGS, in_place ? SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP : 0);
}

void notify_end(struct notify *n)
{
	if (n->fd < 0)
		return;
	signal(SIGCHLD, SIG_DFL);
	close_fd(&n->fd);
}

static bool polled(const struct notify *n, short what)
{
	struct pollfd listener = { .fd = n->fd, .events = POLLIN };

	return n->fd >= 0 && poll(&listener, 1, 0) == 1 && (listener.revents & what);
}

bool notify_pending(const struct notify *n)
{
	return polled(n, POLLIN);
}

enum notified notify_receive(struct notify *n)
{
	memset(&n->request, 0, sizeof n->request); /* the kernel wants it so */
	if (sigsetjmp(awake, 0) == 0) {
		asleep = 1;
		if (!child_tells)
			(void)ioctl(n->fd, SECCOMP_IOCTL_NOTIF_RECV, &n->request);
	}
	asleep = 0;
	if (n->request.pid != 0)
		return NOTIFIED;
	if (child_tells) {
		child_tells = 0;
		return NOTIFIED_CHILD;
	}
	if (polled(n, POLLHUP)) /* the listener's last task is gone, and wait(2) alone has more to tell */
		notify_end(n);
	return NOTIFIED_NOTHING;
}

void notify_let_go(struct notify *n)
{
	struct seccomp_notif_resp answer = { .id = n->request.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE };

	(void)ioctl(n->fd, SECCOMP_IOCTL_NOTIF_SEND, &answer); /* ENOENT: a signal has taken it away, or it was killed */
	n->request.pid = 0;
}

bool notify_waits(const struct notify *n)
{
	return ioctl(n->fd, SECCOMP_IOCTL_NOTIF_ID_VALID, &n->request.id) == 0;
}
