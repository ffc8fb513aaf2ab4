/* Parsing of the operation list. One table says what each operation takes; one function each says what it means. */
#include "spec.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"

enum {
        READ_STEP = 64 * 1024,
        SPEC_MAX_BYTES = 64 * 1024 * 1024, /* argv and environment are limited to 6 MiB by the kernel, execve(2) */
        SPEC_MAX_LOWERS = 4096,
        SPEC_MAX_STRINGS = 1 << 20,
};

int spec_read(int fd, char **buffer, size_t *size)
{
        cleanup_free char *data = NULL;
        size_t used = 0, room = 0;

        for (;;) {
                if (used == room) {
                        room = room ? room * 2 : READ_STEP;
                        if (room > SPEC_MAX_BYTES)
                                return -E2BIG;
                        char *larger = realloc(data, room);
                        if (!larger)
                                return -ENOMEM;
                        data = larger;
                }
                ssize_t got = RETRY(read(fd, data + used, room - used));
                if (got < 0)
                        return -errno;
                if (got == 0)
                        break;
                used += (size_t)got;
        }
        *buffer = steal_ptr(&data);
        *size = used;
        return 0;
}

__attribute__((format(printf, 2, 3))) static int refuse(struct spec_error *error, const char *format, ...)
{
        va_list arguments;

        va_start(arguments, format);
        vsnprintf(error->text, sizeof error->text, format, arguments);
        va_end(arguments);
        return -EINVAL;
}

/* A whole number without sign, blanks or rest; strtoull(3) would accept all three. */
static int parse_number(const char *text, int base, uint64_t most, uint64_t *value, struct spec_error *error)
{
        char *rest = NULL;

        errno = 0;
        unsigned long long number = strtoull(text, &rest, base);
        if (text[0] < '0' || text[0] > '9' || *rest || errno || number > most)
                return refuse(error, "\"%.64s\" is no number up to %llu", text, (unsigned long long)most);
        *value = number;
        return 0;
}

static int parse_path(const char *text, struct spec_error *error)
{
        if (text[0] != '/')
                return refuse(error, "\"%.100s\" is no absolute path", text);
        if (strlen(text) >= PATH_MAX)
                return refuse(error, "a path is longer than %d bytes", PATH_MAX - 1);
        return 0;
}

/* Grows `*list` by one element of `width` bytes whenever the count reaches a power of two. */
static int reserve(void *at, size_t count, size_t width, struct spec_error *error)
{
        void **list = at;

        if (count >= SPEC_MAX_STRINGS)
                return refuse(error, "given more than %d times", SPEC_MAX_STRINGS);
        if (count && (count & (count - 1)))
                return 0;
        void *larger = realloc(*list, (count ? count * 2 : 1) * width);
        if (!larger) {
                refuse(error, "out of memory");
                return -ENOMEM;
        }
        *list = larger;
        return 0;
}

static int op_version(struct spec *spec, const char *const *argument, struct spec_error *error)
{
        (void)spec;
        if (strcmp(argument[0], "1") != 0)
                return refuse(error, "version \"%.32s\" was asked for, this tracer speaks version 1", argument[0]);
        return 0;
}

static bool overlap(uint32_t first, uint32_t second, uint32_t first_count, uint32_t second_count)
{
        return (uint64_t)first < (uint64_t)second + second_count && (uint64_t)second < (uint64_t)first + first_count;
}

static int op_idmap(struct spec *spec, const char *const *argument, struct spec_error *error)
{
        uint64_t number[3];

        for (size_t i = 0; i < 3; i++) {
                int failed = parse_number(argument[i], 10, UINT32_MAX - 1, &number[i], error);
                if (failed)
                        return failed;
        }
        if (spec->range_count == SPEC_MAX_RANGES)
                return refuse(error, "more than %d ranges", SPEC_MAX_RANGES);
        if (!number[2] || number[0] + number[2] > UINT32_MAX || number[1] + number[2] > UINT32_MAX)
                return refuse(error, "the range is empty or leaves the 32-bit ids");
        struct id_range range = {(uint32_t)number[0], (uint32_t)number[1], (uint32_t)number[2]};
        for (size_t i = 0; i < spec->range_count; i++) {
                const struct id_range *other = &spec->ranges[i];
                if (overlap(range.inside, other->inside, range.count, other->count) ||
                    overlap(range.outside, other->outside, range.count, other->count))
                        return refuse(error, "two ranges overlap");
        }
        spec->ranges[spec->range_count++] = range;
        return 0;
}

static int op_lower(struct spec *spec, const char *const *argument, struct spec_error *error)
{
        int failed = parse_path(argument[0], error);

        if (failed)
                return failed;
        if (spec->lower_count == SPEC_MAX_LOWERS)
                return refuse(error, "more than %d lower directories", SPEC_MAX_LOWERS);
        failed = reserve(&spec->lowers, spec->lower_count, sizeof *spec->lowers, error);
        if (failed)
                return failed;
        spec->lowers[spec->lower_count++] = argument[0];
        return 0;
}

static int op_upper(struct spec *spec, const char *const *argument, struct spec_error *error)
{
        if (spec->upper)
                return refuse(error, "given twice");
        int failed = parse_path(argument[0], error);
        if (!failed)
                failed = parse_path(argument[1], error);
        spec->upper = argument[0];
        spec->work = argument[1];
        return failed;
}

static int add_mount(struct spec *spec, struct mount_op mount, struct spec_error *error)
{
        int failed = parse_path(mount.target, error);

        if (!failed && mount.source)
                failed = parse_path(mount.source, error);
        if (!failed)
                failed = reserve(&spec->mounts, spec->mount_count, sizeof *spec->mounts, error);
        if (failed)
                return failed;
        spec->mounts[spec->mount_count++] = mount;
        return 0;
}

static int op_ro_bind(struct spec *spec, const char *const *argument, struct spec_error *error)
{
        return add_mount(spec, (struct mount_op){.kind = OP_RO_BIND, .source = argument[0], .target = argument[1]}, error);
}

static int op_tmpfs(struct spec *spec, const char *const *argument, struct spec_error *error)
{
        uint64_t mode = 0, bytes = 0;
        int failed = parse_number(argument[1], 8, 07777, &mode, error);

        if (!failed)
                failed = parse_number(argument[2], 10, INT64_MAX, &bytes, error);
        if (failed)
                return failed;
        return add_mount(spec,
                         (struct mount_op){
                                 .kind = OP_TMPFS,
                                 .target = argument[0],
                                 .mode = (mode_t)mode,
                                 .bytes = bytes,
                         },
                         error);
}

static int op_proc(struct spec *spec, const char *const *argument, struct spec_error *error)
{
        return add_mount(spec, (struct mount_op){.kind = OP_PROC, .target = argument[0]}, error);
}

static int op_dev(struct spec *spec, const char *const *argument, struct spec_error *error)
{
        return add_mount(spec, (struct mount_op){.kind = OP_DEV, .target = argument[0]}, error);
}

static int op_hostname(struct spec *spec, const char *const *argument, struct spec_error *error)
{
        size_t length = strlen(argument[0]);

        if (!length || length > 64) /* __NEW_UTS_LEN, sethostname(2) */
                return refuse(error, "a host name has 1 to 64 bytes");
        spec->hostname = argument[0];
        return 0;
}

/* The names of prlimit(1)'s options, as numbers of getrlimit(2). */
static const struct {
        const char *name;
        int resource;
} limits[] = {
        {"as", RLIMIT_AS},           {"core", RLIMIT_CORE},
        {"cpu", RLIMIT_CPU},         {"data", RLIMIT_DATA},
        {"fsize", RLIMIT_FSIZE},     {"locks", RLIMIT_LOCKS},
        {"memlock", RLIMIT_MEMLOCK}, {"msgqueue", RLIMIT_MSGQUEUE},
        {"nice", RLIMIT_NICE},       {"nofile", RLIMIT_NOFILE},
        {"nproc", RLIMIT_NPROC},     {"rss", RLIMIT_RSS},
        {"rtprio", RLIMIT_RTPRIO},   {"rttime", RLIMIT_RTTIME},
        {"sigpending", RLIMIT_SIGPENDING}, {"stack", RLIMIT_STACK},
};

static int parse_limit(const char *text, rlim_t *value, struct spec_error *error)
{
        uint64_t number = 0;

        if (strcmp(text, "unlimited") == 0) {
                *value = RLIM_INFINITY;
                return 0;
        }
        int failed = parse_number(text, 10, RLIM_INFINITY - 1, &number, error);
        *value = number;
        return failed;
}

static int op_rlimit(struct spec *spec, const char *const *argument, struct spec_error *error)
{
        if (spec->limit_count == SPEC_MAX_LIMITS)
                return refuse(error, "more than %d limits", SPEC_MAX_LIMITS);
        struct limit *limit = &spec->limits[spec->limit_count];
        for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
                if (strcmp(argument[0], limits[i].name) != 0)
                        continue;
                *limit = (struct limit){.name = limits[i].name, .resource = limits[i].resource};
                int failed = parse_limit(argument[1], &limit->value.rlim_cur, error);
                if (!failed)
                        failed = parse_limit(argument[2], &limit->value.rlim_max, error);
                if (!failed && limit->value.rlim_cur > limit->value.rlim_max)
                        failed = refuse(error, "%s: the soft limit is above the hard one", limit->name);
                spec->limit_count++;
                return failed;
        }
        return refuse(error, "\"%.32s\" is no limit", argument[0]);
}

static int op_cwd(struct spec *spec, const char *const *argument, struct spec_error *error)
{
        spec->cwd = argument[0];
        return parse_path(argument[0], error);
}

static int op_uid(struct spec *spec, const char *const *argument, struct spec_error *error)
{
        uint64_t uid = 0, gid = 0;
        int failed = parse_number(argument[0], 10, UINT32_MAX - 1, &uid, error);

        if (!failed)
                failed = parse_number(argument[1], 10, UINT32_MAX - 1, &gid, error);
        spec->uid = (uid_t)uid;
        spec->gid = (gid_t)gid;
        return failed;
}

static int op_umask(struct spec *spec, const char *const *argument, struct spec_error *error)
{
        uint64_t mask = 0;
        int failed = parse_number(argument[0], 8, 0777, &mask, error);

        spec->umask = (mode_t)mask;
        return failed;
}

/* Adds `text` to a list that always has room for the final NULL. */
static int add_string(const char ***list, size_t *count, const char *text, struct spec_error *error)
{
        if (!*count) {
                int failed = reserve(list, 0, sizeof **list, error);
                if (failed)
                        return failed;
        }
        int failed = reserve(list, *count + 1, sizeof **list, error);
        if (failed)
                return failed;
        (*list)[(*count)++] = text;
        (*list)[*count] = NULL;
        return 0;
}

static int op_arg(struct spec *spec, const char *const *argument, struct spec_error *error)
{
        return add_string(&spec->argv, &spec->argc, argument[0], error);
}

static int op_env(struct spec *spec, const char *const *argument, struct spec_error *error)
{
        const char *equals = strchr(argument[0], '=');

        if (!equals || equals == argument[0])
                return refuse(error, "\"%.64s\" is not NAME=VALUE", argument[0]);
        return add_string(&spec->envp, &spec->env_count, argument[0], error);
}

static int parse_switch(const char *text, bool *value, struct spec_error *error)
{
        if (strcmp(text, "0") != 0 && strcmp(text, "1") != 0)
                return refuse(error, "\"%.32s\" is neither 0 nor 1", text);
        *value = text[0] == '1';
        return 0;
}

static int op_walk(struct spec *spec, const char *const *argument, struct spec_error *error)
{
        return parse_switch(argument[0], &spec->walk, error);
}

static int op_trace(struct spec *spec, const char *const *argument, struct spec_error *error)
{
        bool traced = true;

        spec->stops_only = strcmp(argument[0], "stops") == 0;
        int failed = spec->stops_only ? 0 : parse_switch(argument[0], &traced, error);
        spec->untraced = !traced;
        return failed;
}

static int op_handoff(struct spec *spec, const char *const *argument, struct spec_error *error)
{
        return parse_switch(argument[0], &spec->handoff, error);
}

static int op_count(struct spec *spec, const char *const *argument, struct spec_error *error)
{
        return parse_switch(argument[0], &spec->counts, error);
}

static int op_end(struct spec *spec, const char *const *argument, struct spec_error *error)
{
        (void)argument;
        (void)error;
        spec->ended = true;
        return 0;
}

enum { MAX_ARGUMENTS = 3 };

static const struct operation {
        const char *name;
        size_t arguments;
        int (*apply)(struct spec *spec, const char *const *argument, struct spec_error *error);
} operations[] = {
        {"version", 1, op_version}, {"idmap", 3, op_idmap},       {"lower", 1, op_lower},   {"upper", 2, op_upper},
        {"ro-bind", 2, op_ro_bind}, {"tmpfs", 3, op_tmpfs},       {"proc", 1, op_proc},     {"dev", 1, op_dev},
        {"hostname", 1, op_hostname}, {"rlimit", 3, op_rlimit}, {"cwd", 1, op_cwd},         {"uid", 2, op_uid},
        {"arg", 1, op_arg},         {"env", 1, op_env},           {"walk", 1, op_walk},     {"trace", 1, op_trace},
        {"umask", 1, op_umask},     {"handoff", 1, op_handoff}, {"count", 1, op_count},   {"end", 0, op_end},
};

static const struct operation *find_operation(const char *name)
{
        for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
                if (strcmp(operations[i].name, name) == 0)
                        return &operations[i];
        return NULL;
}

/* The next NUL-terminated string at *at, or NULL when none is left. */
static const char *next_string(const char **at, const char *end)
{
        const char *start = *at;

        if (start == end)
                return NULL;
        const char *stop = memchr(start, '\0', (size_t)(end - start));
        if (!stop)
                return NULL;
        *at = stop + 1;
        return start;
}

static int check_whole(const struct spec *spec, struct spec_error *error)
{
        snprintf(error->operation, sizeof error->operation, "end");
        if (!spec->ended)
                return refuse(error, "the specification is cut off: `end` is missing");
        if (!spec->lower_count)
                return refuse(error, "no `lower` was given");
        if (!spec->upper)
                return refuse(error, "no `upper` was given");
        if (!spec->argc)
                return refuse(error, "no `arg` was given: there is no command");
        if (!spec->cwd)
                return refuse(error, "no `cwd` was given");
        if (!spec->range_count)
                return refuse(error, "no `idmap` was given");
        return 0;
}

/* Takes one operation from *at. */
static int parse_operation(struct spec *spec, bool first, const char **at, const char *end, struct spec_error *error)
{
        const char *argument[MAX_ARGUMENTS] = {NULL};
        const char *name = next_string(at, end);

        if (!name)
                return refuse(error, "the last string has no end");
        snprintf(error->operation, sizeof error->operation, "%.31s", name);
        if (spec->ended)
                return refuse(error, "stands after `end`");
        if (first != (strcmp(name, "version") == 0))
                return refuse(error, "`version` comes first, and once");
        const struct operation *operation = find_operation(name);
        if (!operation)
                return refuse(error, "is no operation that this tracer knows");
        for (size_t i = 0; i < operation->arguments; i++) {
                argument[i] = next_string(at, end);
                if (!argument[i])
                        return refuse(error, "takes %zu arguments, has %zu", operation->arguments, i);
        }
        return operation->apply(spec, argument, error);
}

int spec_parse(struct spec *spec, char *buffer, size_t size, struct spec_error *error)
{
        const char *at = buffer, *end = buffer + size;
        bool first = true;
        int failed = 0;

        *spec = (struct spec){.buffer = buffer, .size = size, .umask = 022};
        *error = (struct spec_error){.operation = "spec"};
        if (!size)
                return refuse(error, "the specification is empty");
        while (at != end && !failed) {
                failed = parse_operation(spec, first, &at, end, error);
                first = false;
        }
        if (failed)
                return failed;
        if (!spec->env_count) {
                failed = reserve(&spec->envp, 0, sizeof *spec->envp, error);
                if (failed)
                        return failed;
                spec->envp[0] = NULL;
        }
        return check_whole(spec, error);
}

void spec_free(struct spec *spec)
{
        free(spec->lowers);
        free(spec->mounts);
        free(spec->argv);
        free(spec->envp);
        free(spec->buffer);
        *spec = (struct spec){0};
}
