/* Starting a guest: from a specification to a process that stands in its sandbox, one step before its exec.
 *
 * T (this program) makes C, which becomes pid 1 of the sandbox, and C makes G, which becomes the guest's command.
 * launch() returns when G has done everything but its last step: its seccomp filter is installed and it waits for one
 * byte from `go_fd`. Then whoever traces must
 *   1. PTRACE_SEIZE guest_pid (no stop is needed: G sleeps in read(2), which the filter allows),
 *   2. write one byte to go_fd and close it,
 *   3. wait4(-1, __WALL) until ECHILD. G's death ends C (init_pid, T's child: not traced), and the kernel then kills all
 *      other tasks of the pid namespace; C can't finish before the tracer has reaped every tracee, since
 *      zap_pid_ns_processes() waits for them (pid_namespaces(7)).
 * If T dies, C gets SIGKILL (PR_SET_PDEATHSIG); tracees die by PTRACE_O_EXITKILL and with C. */
#pragma once

#include <sys/types.h>

#include "failure.h"
#include "ids.h"
#include "spec.h"

struct launched {
        pid_t init_pid;  /* C, in T's pid namespace; T's child and not a tracee */
        int init_pidfd;  /* of C: pidfd_send_signal(2) with SIGKILL ends everything */
        pid_t guest_pid; /* G, in T's pid namespace; C's child, so visible to wait(2) only once seized */
        int go_fd;       /* one byte lets G exec; owned by the receiver */
        int listener_fd; /* G's notifications (notify.h), or -1; owned by the receiver */
        int root_fd;     /* O_PATH descriptor of the guest's root folder */
};

struct launch_request {
        struct spec *spec;
        const struct ids *ids;
        int control_fd;      /* ends it all early: control.h */
        char *const *argv;   /* T's own, which C overwrites */
};

/* 0 and *out, or -errno and *failure; then nothing of the sandbox is left. */
int launch(const struct launch_request *request, struct launched *out, struct failure *failure);
