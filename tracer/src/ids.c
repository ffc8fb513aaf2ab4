#include "ids.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cleanup.h"

static int write_file(const char *path, const char *text)
{
        cleanup_fd int fd = open(path, O_WRONLY | O_CLOEXEC);

        if (fd < 0)
                return -errno;
        size_t length = strlen(text);
        ssize_t wrote = RETRY(write(fd, text, length));
        if (wrote < 0)
                return -errno;
        return (size_t)wrote == length ? 0 : -EIO;
}

/* True in the first user namespace only, whose map is the identity over all ids. Elsewhere even root may not use the
 * trusted.* attributes that an overlay without `userxattr` needs (xattr(7)). */
static bool in_first_namespace(void)
{
        unsigned int inside = 1, outside = 1, count = 0;
        FILE *map = fopen("/proc/self/uid_map", "re");

        if (!map)
                return false;
        int fields = fscanf(map, "%u %u %u", &inside, &outside, &count);
        fclose(map);
        return fields == 3 && !inside && !outside && count == UINT32_MAX;
}

static bool can_administer(void)
{
        struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};

        if (syscall(SYS_capget, &header, data))
                return false;
        return data[0].effective & (1U << CAP_SYS_ADMIN);
}

static int check_privileged(struct ids *ids, const struct spec *spec, struct failure *failure)
{
        for (size_t i = 0; i < spec->range_count; i++) {
                if (!spec->ranges[i].outside)
                        return fail(failure, "idmap", EINVAL, "root outside can't be mapped: the guest would be root");
                ids->uids.ranges[i] = spec->ranges[i];
        }
        ids->uids.count = spec->range_count;
        ids->gids = ids->uids;
        return 0;
}

/* The one `idmap` names the user id; the group is the caller's own, called inside as `uid` says. */
static int enter_own_namespace(struct ids *ids, const struct spec *spec, struct failure *failure)
{
        const struct id_range *only = &spec->ranges[0];
        uid_t uid = geteuid();
        gid_t gid = getegid();
        char text[64];

        if (spec->range_count != 1 || only->count != 1 || only->outside != uid)
                return fail(failure, "idmap", EPERM, "without privilege only the own id %u can be mapped, once", uid);
        if (unshare(CLONE_NEWUSER))
                return fail(failure, "userns", errno, "unshare(CLONE_NEWUSER): %s", strerror(errno));
        int failed = write_file("/proc/self/setgroups", "deny");
        if (!failed) {
                snprintf(text, sizeof text, "0 %u 1\n", uid);
                failed = write_file("/proc/self/uid_map", text);
        }
        if (!failed) {
                snprintf(text, sizeof text, "0 %u 1\n", gid);
                failed = write_file("/proc/self/gid_map", text);
        }
        if (failed)
                return fail(failure, "userns", -failed, "mapping the own ids: %s", strerror(-failed));
        ids->uids = (struct id_map){.ranges = {{only->inside, 0, 1}}, .count = 1};
        ids->gids = (struct id_map){.ranges = {{spec->gid, 0, 1}}, .count = 1};
        return 0;
}

int ids_prepare(struct ids *ids, const struct spec *spec, struct failure *failure)
{
        uint32_t outside = 0;

        *ids = (struct ids){.privileged = !geteuid() && can_administer() && in_first_namespace()};
        int failed = ids->privileged ? check_privileged(ids, spec, failure) : enter_own_namespace(ids, spec, failure);
        if (failed)
                return failed;
        if (!ids_outside(&ids->uids, spec->uid, &outside) || !ids_outside(&ids->gids, spec->gid, &outside))
                return fail(failure, "uid", EINVAL, "no `idmap` holds the ids %u and %u", spec->uid, spec->gid);
        return 0;
}

static int write_map(const struct id_map *map, pid_t guest, const char *file, struct failure *failure)
{
        char path[64], text[SPEC_MAX_RANGES * 36];
        size_t used = 0;

        for (size_t i = 0; i < map->count; i++) {
                const struct id_range *range = &map->ranges[i];
                used += (size_t)snprintf(text + used, sizeof text - used, "%u %u %u\n", range->inside, range->outside,
                                         range->count);
        }
        snprintf(path, sizeof path, "/proc/%d/%s", guest, file);
        int failed = write_file(path, text);
        if (failed)
                return fail(failure, "idmap", -failed, "writing the guest's %s: %s", file, strerror(-failed));
        return 0;
}

int ids_write_maps(const struct ids *ids, pid_t guest, struct failure *failure)
{
        int failed = write_map(&ids->uids, guest, "uid_map", failure);

        return failed ? failed : write_map(&ids->gids, guest, "gid_map", failure);
}

bool ids_outside(const struct id_map *map, uint32_t inside, uint32_t *outside)
{
        for (size_t i = 0; i < map->count; i++) {
                const struct id_range *range = &map->ranges[i];
                if (inside >= range->inside && inside - range->inside < range->count) {
                        *outside = range->outside + (inside - range->inside);
                        return true;
                }
        }
        return false;
}

uint32_t ids_inside(const struct id_map *map, uint32_t outside)
{
        for (size_t i = 0; i < map->count; i++) {
                const struct id_range *range = &map->ranges[i];
                if (outside >= range->outside && outside - range->outside < range->count)
                        return range->inside + (outside - range->outside);
        }
        return ID_UNMAPPED;
}
