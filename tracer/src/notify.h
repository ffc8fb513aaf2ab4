/* Calls that are told by a notification (seccomp_unotify(2)) in place of a stop: half as dear, since it needs fewer
 * requests, and since the kernel wakes T on the CPU of the caller. For calls whose facts are known before they are made.
 *
 * Knows the listener and one notification at a time. Knows nothing of what a call means.
 *
 * - A notification that can't be answered so (its outcome is wanted, or its argument can't be read) is turned into a
 *   stop: an interrupt takes the task out of its wait, and it makes the call again with WANTS_STOP in the argument that
 *   no such call has, for which the filter asks for a stop. Nothing of the call has happened until then.
 * - A signal takes a task out of its wait, too. Its handler runs, and the call, which has not begun, is made again: also
 *   where the handler was set without SA_RESTART, for stat(2) never fails with EINTR.
 * - A task in its wait can't run: its way out is an answer, its death, or a stop, from which T has to let it go.
 * - When T dies the guest is killed, as one that is only traced. What it calls before that fails with ENOSYS. */
#pragma once

#include <linux/seccomp.h>
#include <stdbool.h>
#include <sys/types.h>

struct call_row;

struct notify {
	int fd; /* the listener; -1: there is none, or no more notification can come */
	bool in_place; /* wake and be woken on the CPU of the other */
	struct seccomp_notif request;
};

enum notified {
	NOTIFIED,	 /* `request` */
	NOTIFIED_CHILD,	 /* wait(2) has something to tell */
	NOTIFIED_NOTHING /* a signal, or a task was killed in its wait */
};

/* Whether this call comes by notification, if there is a listener. */
bool notify_row(const struct call_row *row);
/* Takes the listener. 0 or -errno. */
int notify_start(struct notify *n, int listener);
void notify_end(struct notify *n);
/* Sleeps until one of the three is so. */
enum notified notify_receive(struct notify *n);
/* The call of `request` is to be made. */
void notify_let_go(struct notify *n);
/* Whether T is woken on the CPU of the caller, and the caller on that of T. */
void notify_in_place(struct notify *n, bool in_place);
/* A task waits whose notification was not received yet. */
bool notify_pending(const struct notify *n);
/* The task of `request` is still in its wait. */
bool notify_waits(const struct notify *n);
