/* A guest whose command is /proc/self/exe runs this very file, and gets a name of it that no mount hides; with write
 * permission it could replace what the host runs next (CVE-2019-5736). A guest in ids of its own can't write here. One
 * that runs as the caller may own the file; then T starts again from a copy that nobody can change. */
#include "selfexe.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"

enum { SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

extern char **environ;

static int copy_all(int from, int to)
{
        for (;;) {
                ssize_t sent = RETRY(sendfile(to, from, NULL, 1 << 30));
                if (sent <= 0)
                        return sent ? -errno : 0;
        }
}

int selfexe_protect(char **argv, struct failure *failure)
{
        struct stat what;
        cleanup_fd int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

        if (file < 0 || fstat(file, &what))
                return fail(failure, "selfexe", errno, "/proc/self/exe: %s", strerror(errno));
        if (fcntl(file, F_GET_SEALS) == SEALS)
                return 0;
        /* Root's guests have ids of their own; what only root may write to is out of reach for the others as well. */
        if (!(what.st_mode & (S_IWGRP | S_IWOTH)) && (what.st_uid == 0 || what.st_uid != geteuid()))
                return 0;
        cleanup_fd int copy = memfd_create("mulligan-tracer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        if (copy < 0)
                return fail(failure, "selfexe", errno, "memfd_create: %s", strerror(errno));
        int failed = copy_all(file, copy);
        if (failed || fcntl(copy, F_ADD_SEALS, SEALS))
                return fail(failure, "selfexe", failed ? -failed : errno, "copying the tracer: %s",
                            strerror(failed ? -failed : errno));
        fexecve(copy, argv, environ);
        return fail(failure, "selfexe", errno, "starting the copy: %s", strerror(errno));
}
