/* Loaded into the shell of an action: tries to start a program that does not exist, at the shell's very end.
 *
 * The tracer reports a failed exec with its whole environment, working directory and umask, and the runtime hands these on
 * to the next action. That has to be done at the end of the shell, whichever way it ends, with the variables that it would
 * export then, and without the text that it runs being able to tell: no trap that `trap -p` lists, no line before line 1, no
 * command that `set -x` shows. So it is done from inside: bash exports its own symbols for loadable builtins.
 *
 * Two ends: exit(3), which runs the destructor below; and an exec by the shell itself, be it asked for or bash's own for
 * the last command of a text, for which execve(2) is taken over. What is killed hands on nothing. Children of the shell are
 * left alone, and a program that is started is none of ours: LD_PRELOAD is taken out of the environment before main().
 *
 * Freestanding: the C library here is the guest's, whichever that is. */
#include <stddef.h>
#include <sys/syscall.h>

#define HANDOFF_PROGRAM "/.mulligan/handoff"
#define VARIABLE "LD_PRELOAD=/proc/self/fd/"

/* Of bash (variables.h) and of the C library; absent in whatever else may be called like the shell. */
extern char **environ __attribute__((weak));
extern char **export_env __attribute__((weak));
extern int array_needs_making __attribute__((weak));
extern void *temporary_env __attribute__((weak));
extern void maybe_make_export_env(void) __attribute__((weak));
extern int *__errno_location(void) __attribute__((weak));

int execve(const char *path, char *const argv[], char *const envp[]);

static long shell;

static long call(long number, long first, long second, long third)
{
        long result;

        __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(first), "S"(second), "d"(third) : "rcx", "r11", "memory");
        return result;
}

static long map(size_t size)
{
        register long flags __asm__("r10") = 0x22; /* MAP_PRIVATE | MAP_ANONYMOUS */
        register long fd __asm__("r8") = -1;
        register long offset __asm__("r9") = 0;
        long result;

        __asm__ volatile("syscall"
                         : "=a"(result)
                         : "a"(SYS_mmap), "D"(0), "S"(size), "d"(3), "r"(flags), "r"(fd), "r"(offset)
                         : "rcx", "r11", "memory");
        return result;
}

static size_t length(const char *text)
{
        size_t n = 0;

        while (text[n])
                n++;
        return n;
}

static int is_shell(void)
{
        return shell && call(SYS_getpid, 0, 0, 0) == shell && maybe_make_export_env && &export_env && &array_needs_making &&
               &temporary_env;
}

static void remake(void *temporary)
{
        temporary_env = temporary;
        array_needs_making = 1;
        maybe_make_export_env();
}

/* Without the variables that stand before a command: they are that command's own. */
static void hand_on(void)
{
        static const char *const argv[] = {HANDOFF_PROGRAM, NULL};
        void *temporary = temporary_env;

        remake(NULL);
        call(SYS_execve, (long)HANDOFF_PROGRAM, (long)argv, (long)export_env);
        remake(temporary);
}

/* Bash frees the strings of its environment when it makes it anew. NULL when there is no memory. */
static char *const *copied(char *const envp[])
{
        size_t count = 0, size = 0;

        for (; envp[count]; count++)
                size += length(envp[count]) + 1;
        long memory = map(size + (count + 1) * sizeof *envp);
        if (memory < 0 && memory > -4096)
                return NULL;
        char **list = (char **)memory;
        char *text = (char *)(list + count + 1);
        for (size_t i = 0; i < count; i++) {
                list[i] = text;
                for (const char *from = envp[i]; (*text++ = *from++);)
                        continue;
        }
        list[count] = NULL;
        return list;
}

int execve(const char *path, char *const argv[], char *const envp[])
{
        char *const *copy = envp && is_shell() ? copied(envp) : NULL;

        if (copy)
                hand_on();
        long failed = call(SYS_execve, (long)path, (long)argv, (long)(copy ? copy : envp));
        if (__errno_location)
                *__errno_location() = (int)-failed;
        return -1;
}

/* The environment as if nothing had been loaded; `entry` is its LD_PRELOAD. */
static void forget(char **entry)
{
        char *value = *entry + sizeof VARIABLE - 1;
        long fd = 0;

        for (; *value >= '0' && *value <= '9'; value++)
                fd = fd * 10 + (*value - '0');
        call(SYS_close, fd, 0, 0);
        if (*value == ':') { /* the action's own */
                char *to = *entry + sizeof "LD_PRELOAD=" - 1;
                for (value++; *value; *value++ = '\0')
                        *to++ = *value;
                while (*to && to < value)
                        *to++ = '\0';
                return;
        }
        for (char *text = *entry; text < value; text++)
                *text = '\0'; /* the last string: /proc/PID/environ ends earlier */
        for (; *entry; entry++)
                entry[0] = entry[1];
}

static int begins(const char *text, const char *start)
{
        while (*start)
                if (*text++ != *start++)
                        return 0;
        return 1;
}

__attribute__((constructor)) static void begin(int argc, char **argv, char **envp)
{
        char **all = &environ && environ ? environ : envp; /* glibc passes all three, musl none */

        (void)argc;
        (void)argv;
        for (; *all; all++)
                if (begins(*all, VARIABLE)) {
                        forget(all);
                        shell = call(SYS_getpid, 0, 0, 0);
                        return;
                }
}

__attribute__((destructor)) static void end(void)
{
        if (is_shell())
                hand_on();
}
