/* The set-up as data: what arrived on SPEC_FD, checked and put into a struct. See PROTOCOL.md.
 *
 * Knows the format only. Knows nothing of namespaces or mounts. All strings point into the one buffer that was read. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

enum mount_op_kind { OP_RO_BIND, OP_TMPFS, OP_PROC, OP_DEV };

struct mount_op {
        enum mount_op_kind kind;
        const char *source; /* OP_RO_BIND: a host path */
        const char *target; /* a guest path */
        mode_t mode;        /* OP_TMPFS */
        uint64_t bytes;     /* OP_TMPFS */
};

struct id_range {
        uint32_t inside;
        uint32_t outside;
        uint32_t count;
};

struct limit {
        const char *name;
        int resource;
        struct rlimit value;
};

enum { SPEC_MAX_RANGES = 16, SPEC_MAX_LIMITS = 32 };

struct spec {
        char *buffer;
        size_t size;

        struct id_range ranges[SPEC_MAX_RANGES];
        size_t range_count;

        const char **lowers; /* topmost first */
        size_t lower_count;
        const char *upper;
        const char *work;

        struct mount_op *mounts; /* in the order given */
        size_t mount_count;

        const char *hostname;
        const char *cwd;
        mode_t umask;
        uid_t uid; /* inside */
        gid_t gid;

        struct limit limits[SPEC_MAX_LIMITS];
        size_t limit_count;

        const char **argv; /* NULL-terminated */
        size_t argc;
        const char **envp; /* NULL-terminated */
        size_t env_count;

        bool walk;
        bool handoff;  /* the command is a shell that hands on what it exports */
        bool untraced; /* for measurements: the same sandbox without filter and tracer */
        bool stops_only; /* no notifications (notify.h) */
        bool counts;     /* for measurements: counters on STATUS_FD */
        bool ended;
};

/* What is wrong with a specification: the operation at fault and a sentence. */
struct spec_error {
        char operation[32];
        char text[256];
};

/* Reads `fd` to its end. 0 or -errno. */
int spec_read(int fd, char **buffer, size_t *size);

/* Parses `buffer` (which `spec` owns from here on, also on failure). 0, or -EINVAL/-ENOMEM and *error filled. */
int spec_parse(struct spec *spec, char *buffer, size_t size, struct spec_error *error);

void spec_free(struct spec *spec);
