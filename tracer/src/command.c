/* glibc's execvpe(3) would do most of this, but it takes PATH from its own environment, and musl's has other rules
 * for what ends the search; the guest's command must not depend on how the tracer was built. */
#include "command.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "cleanup.h"

enum { EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };

#define DEFAULT_PATH "/bin:/usr/bin" /* execvp(3), without PATH */

const char *command_variable(const char *const *envp, const char *name)
{
        size_t length = strlen(name);

        for (; *envp; envp++)
                if (strncmp(*envp, name, length) == 0 && (*envp)[length] == '=')
                        return *envp + length + 1;
        return NULL;
}

_Noreturn static void give_up(const char *name, const char *reason, int status)
{
        char start[] = "mulligan: ", colon[] = ": ", end[] = "\n";
        struct iovec parts[] = {
                {start, sizeof start - 1}, {(void *)(uintptr_t)name, strlen(name)},     {colon, sizeof colon - 1},
                {(void *)(uintptr_t)reason, strlen(reason)}, {end, sizeof end - 1},
        };

        (void)!RETRY(writev(STDERR_FILENO, parts, sizeof parts / sizeof *parts));
        _exit(status);
}

/* A file without a known format is a shell script (execvp(3), ENOEXEC). */
static int exec_as_script(const char *path, const char *const *argv, const char *const *envp)
{
        size_t count = 0;

        while (argv[count])
                count++;
        cleanup_free const char **shell = calloc(count + 2, sizeof *shell);
        if (!shell)
                return -ENOMEM;
        shell[0] = "/bin/sh";
        shell[1] = path;
        for (size_t i = 1; i < count; i++)
                shell[i + 1] = argv[i];
        execve(shell[0], (char *const *)(uintptr_t)shell, (char *const *)(uintptr_t)envp);
        return -errno;
}

/* Returns only on failure. */
static int try_exec(const char *path, const char *const *argv, const char *const *envp)
{
        execve(path, (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)envp);
        return errno == ENOEXEC ? exec_as_script(path, argv, envp) : -errno;
}

/* Errors that mean "not in this folder", after which the search goes on (glibc: posix/execvpe.c). */
static bool search_on(int error)
{
        return error == ENOENT || error == ENOTDIR || error == EACCES || error == ESTALE || error == ENODEV ||
               error == ETIMEDOUT || error == ENAMETOOLONG;
}

/* The -errno that describes the whole search best. */
static int search_path(const char *name, const char *const *argv, const char *const *envp)
{
        const char *path = command_variable(envp, "PATH");
        char candidate[PATH_MAX + NAME_MAX + 2];
        size_t length = strlen(name);
        bool denied = false;

        if (length > NAME_MAX)
                return -ENAMETOOLONG;
        for (const char *folder = path ? path : DEFAULT_PATH;;) {
                const char *colon = strchrnul(folder, ':');
                size_t size = (size_t)(colon - folder);
                if (size < PATH_MAX) {
                        memcpy(candidate, folder, size);
                        if (size) /* an empty one is the working directory */
                                candidate[size++] = '/';
                        memcpy(candidate + size, name, length + 1);
                        int error = -try_exec(candidate, argv, envp);
                        if (!search_on(error))
                                return -error;
                        denied |= error == EACCES;
                }
                if (!*colon)
                        return denied ? -EACCES : -ENOENT;
                folder = colon + 1;
        }
}

_Noreturn void command_exec(const char *cwd, const char *const *argv, const char *const *envp)
{
        const char *name = argv[0];

        if (chdir(cwd))
                give_up(cwd, strerror(errno), EXIT_NOT_EXECUTABLE);
        bool search = !strchr(name, '/');
        int error = !*name ? ENOENT : search ? -search_path(name, argv, envp) : -try_exec(name, argv, envp);
        if (error == ENOENT || error == ENOTDIR)
                give_up(name, search ? "command not found" : strerror(error), EXIT_NOT_FOUND);
        give_up(name, strerror(error), EXIT_NOT_EXECUTABLE);
}
