#include "launch.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleanup.h"
#include "control.h"
#include "init.h"
#include "kernel.h"
#include "message.h"

#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x00001000
#endif

enum {
        SANDBOX_NAMESPACES =
                CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP | CLONE_NEWNET,
};

/* The pair of sockets; T's end learns who sent each message. */
static int make_channel(int ends[2], struct failure *failure)
{
        int on = 1;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
                return fail(failure, "launch", errno, "socketpair: %s", strerror(errno));
        if (setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on))
                return fail(failure, "launch", errno, "SO_PASSCRED: %s", strerror(errno));
        return 0;
}

static int start_init(const struct launch_request *request, const int ends[2], struct launched *out,
                      struct failure *failure)
{
        cleanup_fd int self = (int)syscall(SYS_pidfd_open, getpid(), 0);

        if (self < 0)
                return fail(failure, "launch", errno, "pidfd_open: %s", strerror(errno));
        out->init_pid = sys_fork((unsigned long)SANDBOX_NAMESPACES | CLONE_PIDFD | SIGCHLD, &out->init_pidfd);
        if (out->init_pid == 0) {
                close(ends[0]);
                init_run(request, self, ends[1]);
        }
        if (out->init_pid < 0)
                return fail(failure, "namespaces", errno, "making the namespaces: %s", strerror(errno));
        return 0;
}

/* The next message, which must be of `kind`. */
static int expect(int channel, enum message_kind kind, struct message *message, pid_t *sender, struct failure *failure)
{
        int failed = message_receive(channel, message, sender);

        if (failed)
                return fail(failure, "launch", -failed, "%s",
                            control_fired() ? "the control descriptor was closed" : "the sandbox's init died");
        if (message->kind == MESSAGE_FAILED) {
                message->failure.operation[sizeof message->failure.operation - 1] = '\0';
                message->failure.text[sizeof message->failure.text - 1] = '\0';
                *failure = message->failure;
                return message->failure.error > 0 ? -message->failure.error : -EPROTO;
        }
        if (message->kind != (int)kind)
                return fail(failure, "launch", EPROTO, "message %d in place of %d", message->kind, (int)kind);
        return 0;
}

static rlim_t lesser(rlim_t left, rlim_t right)
{
        return left < right ? left : right; /* RLIM_INFINITY is the greatest */
}

/* Done from outside: T may be allowed to raise hard limits, G is not (getrlimit(2), prlimit). Where T is not either, the
 * present hard limit stands: it is stricter than what was asked for. */
static int limit_guest(const struct spec *spec, pid_t guest, struct failure *failure)
{
        for (size_t i = 0; i < spec->limit_count; i++) {
                const struct limit *limit = &spec->limits[i];
                int resource = limit->resource;
                struct rlimit present, wanted = limit->value;
                if (!prlimit(guest, resource, &wanted, NULL))
                        continue;
                if (errno == EPERM && !prlimit(guest, resource, NULL, &present)) {
                        wanted.rlim_max = lesser(wanted.rlim_max, present.rlim_max);
                        wanted.rlim_cur = lesser(wanted.rlim_cur, wanted.rlim_max);
                        if (!prlimit(guest, resource, &wanted, NULL))
                                continue;
                }
                return fail(failure, "rlimit", errno, "%s: %s", limit->name, strerror(errno));
        }
        return 0;
}

static int open_root(pid_t guest, struct failure *failure)
{
        char path[64];

        snprintf(path, sizeof path, "/proc/%d/root", guest);
        int root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (root < 0)
                return fail(failure, "launch", errno, "opening the guest's root: %s", strerror(errno));
        return root;
}

/* Containers may refuse pidfd_getfd(2): then G has to do without a listener. Tried with what every guest has. */
static bool can_take_from(pid_t guest)
{
        cleanup_fd int process = (int)syscall(SYS_pidfd_open, guest, 0);
        cleanup_fd int taken = process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, STDIN_FILENO, 0);

        return taken >= 0;
}

/* G's listener, for T alone: G closes its own when it goes on. */
static int take_listener(const struct message *ready, struct launched *out, struct failure *failure)
{
        if (ready->listener < 0)
                return 0;
        cleanup_fd int guest = (int)syscall(SYS_pidfd_open, out->guest_pid, 0);
        out->listener_fd = guest < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, guest, ready->listener, 0);
        if (out->listener_fd < 0)
                return fail(failure, "seccomp", errno, "taking the guest's listener: %s", strerror(errno));
        return 0;
}

static int bring_up(const struct spec *spec, const struct ids *ids, int channel, struct launched *out,
                    struct failure *failure)
{
        struct message message;
        int failed = expect(channel, MESSAGE_BORN, &message, &out->guest_pid, failure);

        if (!failed)
                failed = ids_write_maps(ids, out->guest_pid, failure);
        if (!failed) {
                failed = message_send_listener(channel, MESSAGE_MAPPED, can_take_from(out->guest_pid) ? 0 : -1);
                if (failed)
                        fail(failure, "launch", -failed, "the guest died: %s", strerror(-failed));
        }
        if (!failed)
                failed = expect(channel, MESSAGE_READY, &message, NULL, failure);
        if (!failed)
                failed = take_listener(&message, out, failure);
        if (!failed)
                failed = limit_guest(spec, out->guest_pid, failure);
        if (failed)
                return failed;
        out->root_fd = open_root(out->guest_pid, failure);
        return out->root_fd < 0 ? out->root_fd : 0;
}

int launch(const struct launch_request *request, struct launched *out, struct failure *failure)
{
        int ends[2] = {-1, -1};

        *out = (struct launched){.init_pid = -1, .init_pidfd = -1, .guest_pid = -1, .go_fd = -1,
                                 .listener_fd = -1, .root_fd = -1};
        int failed = make_channel(ends, failure);
        cleanup_fd int channel = ends[0];
        cleanup_fd int theirs = ends[1];
        if (!failed)
                failed = start_init(request, ends, out, failure);
        if (failed)
                return failed;
        close_fd(&theirs); /* so that the death of C and G is the end of the channel */
        failed = control_watch(request->control_fd, out->init_pidfd);
        if (failed)
                fail(failure, "control", -failed, "watching the control descriptor: %s", strerror(-failed));
        else
                failed = bring_up(request->spec, request->ids, channel, out, failure);
        if (failed) {
                sys_pidfd_send_signal(out->init_pidfd, SIGKILL);
                RETRY(waitpid(out->init_pid, NULL, __WALL));
                close_fd(&out->listener_fd);
                return failed;
        }
        out->go_fd = steal_fd(&channel);
        return 0;
}
