/* A descriptor, and no file of the sandbox: nothing of ours has a place in the state, and a name that the guest could write to
 * would be told by the tracer as an input. */
#include "preload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cleanup.h"

#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U /* Linux 6.3; where vm.memfd_noexec is 1 it is needed */
#endif

#define VARIABLE "LD_PRELOAD="

/* make runs in the folder of the Makefile, which makes the object. */
__asm__(".pushsection .rodata\n"
        "handoff_object: .incbin \"build/handoff.so\"\n"
        "handoff_object_end:\n"
        ".popsection\n");
extern const char handoff_object[] __attribute__((visibility("hidden")));
extern const char handoff_object_end[] __attribute__((visibility("hidden")));

static int object_descriptor(struct failure *failure)
{
        int fd = memfd_create("mulligan", MFD_EXEC);

        if (fd < 0 && errno == EINVAL) /* an older kernel */
                fd = memfd_create("mulligan", 0);
        if (fd < 0)
                return fail(failure, "handoff", errno, "memfd_create: %s", strerror(errno));
        for (const char *at = handoff_object; at < handoff_object_end;) {
                ssize_t wrote = RETRY(write(fd, at, (size_t)(handoff_object_end - at)));
                if (wrote < 0) {
                        int failed = fail(failure, "handoff", errno, "writing the object: %s", strerror(errno));
                        close(fd);
                        return failed;
                }
                at += wrote;
        }
        return fd;
}

int preload_prepare(struct spec *spec, struct failure *failure)
{
        size_t own = spec->env_count;
        int fd = object_descriptor(failure);

        if (fd < 0)
                return fd;
        for (size_t i = 0; i < spec->env_count; i++)
                if (strncmp(spec->envp[i], VARIABLE, sizeof VARIABLE - 1) == 0)
                        own = i;
        const char *more = own < spec->env_count ? spec->envp[own] + sizeof VARIABLE - 1 : "";
        char *entry = NULL;
        const char **envp = calloc(spec->env_count + 2, sizeof *envp);
        if (!envp || asprintf(&entry, VARIABLE "/proc/self/fd/%d%s%s", fd, own < spec->env_count ? ":" : "", more) < 0) {
                free(envp);
                close(fd);
                return fail(failure, "handoff", ENOMEM, "no memory");
        }
        memcpy(envp, spec->envp, spec->env_count * sizeof *envp);
        envp[own] = entry; /* a new one is the last */
        spec->env_count += own == spec->env_count;
        free(spec->envp);
        spec->envp = envp;
        return 0; /* the descriptor and the entry live until the exec */
}
