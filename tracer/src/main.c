/* mulligan-tracer SPEC_FD EVENT_FD STATUS_FD CONTROL_FD: one action, from its specification to its facts. PROTOCOL.md. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cleanup.h"
#include "control.h"
#include "kernel.h"
#include "launch.h"
#include "layerwalk.h"
#include "out.h"
#include "selfexe.h"
#include "status.h"
#include "trace.h"
#include "untraced.h"

enum { SPEC, EVENTS, STATUS, CONTROL, DESCRIPTORS };

/* The exit status: 0, an outcome was reported; 1, an `error` line was; 2, this program was called in a wrong way. */
enum { EXIT_REPORTED = 0, EXIT_FAILED = 1, EXIT_MISUSED = 2 };

static int parse_descriptors(int argc, char **argv, int descriptors[DESCRIPTORS])
{
        if (argc != DESCRIPTORS + 1)
                return -EINVAL;
        for (int i = 0; i < DESCRIPTORS; i++) {
                char *rest = NULL;
                long number = strtol(argv[i + 1], &rest, 10);
                if (!*argv[i + 1] || *rest || number < 3 || number > 1 << 20)
                        return -EINVAL;
                descriptors[i] = (int)number;
                if (fcntl(descriptors[i], F_GETFD) < 0)
                        return -EBADF;
        }
        return 0;
}

static int read_spec(int fd, struct spec *spec, struct failure *failure)
{
        struct spec_error error;
        char *buffer = NULL;
        size_t size = 0;
        int failed = spec_read(fd, &buffer, &size);

        if (failed)
                return fail(failure, "spec", -failed, "reading the specification: %s", strerror(-failed));
        failed = spec_parse(spec, buffer, size, &error);
        if (failed)
                return fail(failure, error.operation, -failed, "%s", error.text);
        return 0;
}

/* The status lines of an action that ran. */
static void report_outcome(int status, const struct trace_result *result, bool counts)
{
        const struct rusage *usage = &result->usage;

        if (control_fired())
                status_line(status, "stopped killed");
        status_line(status, "rusage %lld %lld %ld",
                    (long long)usage->ru_utime.tv_sec * 1000000 + usage->ru_utime.tv_usec,
                    (long long)usage->ru_stime.tv_sec * 1000000 + usage->ru_stime.tv_usec, usage->ru_maxrss);
        status_line(status, "stops %llu",
                    (unsigned long long)(result->notifications + result->seccomp_stops + result->exit_stops + result->other_stops));
        if (counts)
                counts_tell(&result->counts, result, status);
        if (WIFSIGNALED(result->status))
                status_line(status, "signaled %d", WTERMSIG(result->status));
        else
                status_line(status, "exited %d", WEXITSTATUS(result->status));
}

/* Ends the sandbox if tracing left it alive, and waits until it is gone. */
static void finish(struct launched *launched, const struct trace_result *result)
{
        if (!result->init_ended) {
                sys_pidfd_send_signal(launched->init_pidfd, SIGKILL);
                while (RETRY(waitpid(-1, NULL, __WALL)) > 0)
                        continue;
        }
        close_fd(&launched->init_pidfd);
        close_fd(&launched->root_fd); /* it kept the guest's mounts alive */
}

static int run(const struct launch_request *request, int status, struct out *out, struct failure *failure)
{
        struct launched launched;
        struct trace_result result = {0};
        cleanup_fd int upper = open(request->spec->upper, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (upper < 0)
                return fail(failure, "upper", errno, "%s: %s", request->spec->upper, strerror(errno));
        int failed = launch(request, &launched, failure);
        if (failed)
                return failed;
        status_line(status, "started %d", launched.guest_pid);
        failed = request->spec->untraced ? untraced_run(&launched, out, &result) : trace_run(&launched, out, &result);
        finish(&launched, &result);
        if (failed || !result.finished)
                return fail(failure, result.where ? result.where : "trace", failed ? -failed : ECHILD, "tracing: %s",
                            failed ? strerror(-failed) : "the command's end was not seen");
        if (request->spec->walk)
                failed = layerwalk(upper, request->ids, out, failure);
        if (failed)
                return failed;
        failed = out_end(out, result.notifications - result.diverted + result.seccomp_stops, result.exit_stops);
        if (failed)
                return fail(failure, "events", -failed, "writing the events: %s", strerror(-failed));
        report_outcome(status, &result, request->spec->counts);
        return 0;
}

int main(int argc, char **argv)
{
        int descriptors[DESCRIPTORS];
        struct failure failure = {.operation = ""};
        struct spec spec = {0};
        struct ids ids;

        if (parse_descriptors(argc, argv, descriptors)) {
                fprintf(stderr, "usage: mulligan-tracer SPEC_FD EVENT_FD STATUS_FD CONTROL_FD (open descriptors above 2)\n");
                return EXIT_MISUSED;
        }
        signal(SIGPIPE, SIG_IGN); /* a reader that went away is an error to handle, not a death */
        int failed = selfexe_protect(argv, &failure);
        prctl(PR_SET_NAME, "mulligan-tracer"); /* also of the copy, which the kernel names after its descriptor */
        for (int i = 0; i < DESCRIPTORS; i++)
                fcntl(descriptors[i], F_SETFD, FD_CLOEXEC);
        status_line(descriptors[STATUS], "hello 1");
        if (!failed)
                failed = read_spec(descriptors[SPEC], &spec, &failure);
        if (!failed)
                failed = ids_prepare(&ids, &spec, &failure);
        if (!failed) {
                struct launch_request request = {&spec, &ids, descriptors[CONTROL], argv};
                struct out *out = out_new(descriptors[EVENTS]);
                failed = out ? run(&request, descriptors[STATUS], out, &failure)
                             : fail(&failure, "events", ENOMEM, "no memory");
                out_free(out);
        }
        if (failed && control_fired())
                status_line(descriptors[STATUS], "stopped killed");
        if (failed)
                status_failure(descriptors[STATUS], &failure);
        spec_free(&spec);
        return failed ? EXIT_FAILED : EXIT_REPORTED;
}
