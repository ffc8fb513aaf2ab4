#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "command.h"
#include "filter.h"
#include "kernel.h"
#include "message.h"
#include "preload.h"

enum { CHANNEL = 3 };

/* What guest root keeps: Docker's default set without MKNOD, NET_RAW, SYS_CHROOT, SETFCAP and AUDIT_WRITE. All of them
 * count in the guest's own user namespace only. */
static const int kept_capabilities[] = {
        CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_KILL, CAP_SETGID, CAP_SETUID, CAP_SETPCAP,
        CAP_NET_BIND_SERVICE,
};

static uint64_t kept_set(const struct ids *ids)
{
        uint64_t set = 0;

        for (size_t i = 0; ids->privileged && i < sizeof kept_capabilities / sizeof *kept_capabilities; i++)
                set |= 1ULL << kept_capabilities[i];
        return set;
}

static int drop_bounding(uint64_t kept, struct failure *failure)
{
        for (int capability = 0; capability < 64; capability++) {
                if (kept & 1ULL << capability)
                        continue;
                if (prctl(PR_CAPBSET_DROP, capability)) {
                        if (errno == EINVAL) /* beyond the last one this kernel knows */
                                return 0;
                        return fail(failure, "capabilities", errno, "dropping capability %d: %s", capability,
                                    strerror(errno));
                }
        }
        return 0;
}

static int set_capabilities(uint64_t kept, struct failure *failure)
{
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {
                {.effective = (uint32_t)kept, .permitted = (uint32_t)kept},
                {.effective = (uint32_t)(kept >> 32), .permitted = (uint32_t)(kept >> 32)},
        };

        if (syscall(SYS_capset, &header, data))
                return fail(failure, "capabilities", errno, "capset: %s", strerror(errno));
        return 0;
}

/* Ids, then capabilities: after leaving uid 0 the kernel has taken them already (capabilities(7)). */
static int take_identity(const struct spec *spec, const struct ids *ids, struct failure *failure)
{
        uint64_t kept = kept_set(ids);
        int failed = drop_bounding(kept, failure);

        if (failed)
                return failed;
        /* Without privilege setgroups(2) is denied for good, so that no group can be given up (user_namespaces(7)). */
        if (ids->privileged && setgroups(0, NULL))
                return fail(failure, "uid", errno, "setgroups: %s", strerror(errno));
        if (setresgid(spec->gid, spec->gid, spec->gid) || setresuid(spec->uid, spec->uid, spec->uid))
                return fail(failure, "uid", errno, "taking the ids %u and %u: %s", spec->uid, spec->gid, strerror(errno));
        failed = set_capabilities(spec->uid ? 0 : kept, failure);
        if (!failed && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
                failed = fail(failure, "capabilities", errno, "no_new_privs: %s", strerror(errno));
        return failed;
}

/* Ignored signals and the mask survive an exec (execve(2)); the guest starts with neither. */
static void reset_signals(void)
{
        struct sigaction standard = {.sa_handler = SIG_DFL};
        sigset_t none;

        for (int signal = 1; signal < NSIG; signal++)
                sigaction(signal, &standard, NULL); /* fails for SIGKILL, SIGSTOP and the C library's own: fine */
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
}

/* 0, 1 and 2 stay, and the channel, moved to 3. */
static int keep_standard_streams(int *channel, struct failure *failure)
{
        if (*channel != CHANNEL && dup3(*channel, CHANNEL, O_CLOEXEC) < 0)
                return fail(failure, "descriptors", errno, "dup3: %s", strerror(errno));
        *channel = CHANNEL;
        if (sys_close_range(CHANNEL + 1, ~0U, 0))
                return fail(failure, "descriptors", errno, "close_range: %s", strerror(errno));
        return 0;
}

static int prepare(struct spec *spec, const struct ids *ids, int *channel, int *listener, struct failure *failure)
{
        struct message answer;
        /* C is not dumpable, and G began as its copy. Its /proc files would be root's, out of reach for a T that is root
         * of its own namespace only, and so would be tracing it (ptrace(2), PR_SET_DUMPABLE(2const)). */
        int failed = prctl(PR_SET_DUMPABLE, 1) ? -errno : message_send(*channel, MESSAGE_BORN, NULL);

        if (!failed)
                failed = message_receive(*channel, &answer, NULL);
        if (failed)
                _exit(1); /* T is gone or gave up: nobody to tell */
        setsid(); /* a session without a terminal: TIOCSTI has nothing to push into. It fails for a leader only */
        umask(spec->umask);
        reset_signals();
        failed = take_identity(spec, ids, failure);
        if (!failed)
                failed = keep_standard_streams(channel, failure);
        if (!failed && spec->handoff)
                failed = preload_prepare(spec, failure);
        if (!failed && !spec->untraced) {
                failed = filter_install(!spec->stops_only && answer.listener >= 0, listener);
                if (failed)
                        fail(failure, "seccomp", -failed, "installing the filter: %s", strerror(-failed));
        }
        return failed;
}

_Noreturn void guest_run(struct spec *spec, const struct ids *ids, int channel)
{
        struct failure failure = {.operation = ""};
        struct message ready = {.kind = MESSAGE_READY, .listener = -1};
        char go = 0;

        if (prepare(spec, ids, &channel, &ready.listener, &failure)) {
                message_send(channel, MESSAGE_FAILED, &failure);
                _exit(1);
        }
        /* The filter is on and nobody traces yet, so only calls that it does not trace may be made: write, read, close. */
        if (RETRY(write(channel, &ready, offsetof(struct message, failure))) < 0 ||
            RETRY(read(channel, &go, sizeof go)) <= 0)
                _exit(1);
        close(channel);
        if (ready.listener >= 0)
                close(ready.listener); /* T has its own by now, and it must be the only one */
        command_exec(spec->cwd, spec->argv, spec->envp);
}
