/* A mount's target lies in a tree that earlier guests could shape, so it is never named to the kernel by a path that
 * could lead through a symlink: it is opened below the new root, without symlinks, and the mount is moved onto the
 * descriptor (CVE-2021-30465, CVE-2025-31133, CVE-2025-52565 are what happens otherwise). */
#include "mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "cleanup.h"
#include "kernel.h"

/* Masked and read-only paths of the OCI's default configuration, as runc and containerd have them. */
static const char *const masked[] = {
        "acpi", "asound", "interrupts", "kcore", "keys", "latency_stats", "sched_debug", "scsi", "timer_list", "timer_stats",
};
static const char *const read_only[] = {"bus", "fs", "irq", "sys", "sysrq-trigger"};

static const char *const devices[] = {"null", "zero", "full", "random", "urandom", "tty"};
static const struct {
        const char *name;
        const char *target;
} device_links[] = {
        {"fd", "/proc/self/fd"},           {"stdin", "/proc/self/fd/0"}, {"stdout", "/proc/self/fd/1"},
        {"stderr", "/proc/self/fd/2"}, {"ptmx", "pts/ptmx"},
};

static int open_target(int root, const char *path, struct failure *failure)
{
        struct stat what;
        cleanup_fd int target = sys_openat2(root, path, O_PATH | O_NOFOLLOW | O_CLOEXEC,
                                            RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
        int error = target < 0 || fstat(target, &what) ? errno : 0;

        /* Asked for with O_PATH and O_NOFOLLOW, a symlink at the very end is no error but the result (openat2(2)). */
        if (!error && S_ISLNK(what.st_mode))
                error = ELOOP;
        if (error)
                return fail(failure, "mount", error, "mount point %s: %s", path,
                            error == ELOOP ? "it is, or lies behind, a symlink" : strerror(error));
        return steal_fd(&target);
}

static int attach(int mount, int target, const char *name, struct failure *failure)
{
        if (sys_move_mount(mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH))
                return fail(failure, "mount", errno, "mounting on %s: %s", name, strerror(errno));
        return 0;
}

/* A mount of a file system of its own kind. `settings`: pairs of key and value, ended by NULL. */
static int make_mount(const char *type, const char *const *settings, unsigned int attributes, struct failure *failure)
{
        cleanup_fd int context = sys_fsopen(type, FSOPEN_CLOEXEC);

        if (context < 0)
                return fail(failure, "mount", errno, "fsopen %s: %s", type, strerror(errno));
        for (; settings && *settings; settings += 2)
                if (sys_fsconfig(context, FSCONFIG_SET_STRING, settings[0], settings[1], 0))
                        return fail(failure, "mount", errno, "%s option %s=%s: %s", type, settings[0], settings[1],
                                    strerror(errno));
        if (sys_fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
                return fail(failure, "mount", errno, "making a %s: %s", type, strerror(errno));
        int mount = sys_fsmount(context, FSMOUNT_CLOEXEC, attributes);
        if (mount < 0)
                return fail(failure, "mount", errno, "fsmount %s: %s", type, strerror(errno));
        return mount;
}

/* A detached copy of the tree at `path`, with `attributes` all over it. Recursive always: a copy that left out the
 * mounts below would uncover what they hide, and without privilege the kernel refuses it (mount_namespaces(7)). */
static int clone_tree(int directory, const char *path, unsigned int attributes, struct failure *failure)
{
        struct mount_attr change = {.attr_set = attributes, .propagation = MS_PRIVATE};
        cleanup_fd int tree = sys_open_tree(directory, path,
                                            OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE | AT_EMPTY_PATH);

        if (tree < 0)
                return fail(failure, "mount", errno, "bind source %s: %s", path, strerror(errno));
        if (sys_mount_setattr(tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &change))
                return fail(failure, "mount", errno, "restricting the bind of %s: %s", path, strerror(errno));
        return steal_fd(&tree);
}

static int apply_bind(int target, const struct mount_op *mount, struct failure *failure)
{
        cleanup_fd int tree =
                clone_tree(AT_FDCWD, mount->source, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, failure);

        return tree < 0 ? tree : attach(tree, target, mount->target, failure);
}

static int apply_tmpfs(int target, const struct mount_op *mount, const struct spec *spec, const struct ids *ids,
                       struct failure *failure)
{
        char mode[16], bytes[32], uid[16], gid[16];
        uint32_t outside_uid = 0, outside_gid = 0;

        ids_outside(&ids->uids, spec->uid, &outside_uid);
        ids_outside(&ids->gids, spec->gid, &outside_gid);
        snprintf(mode, sizeof mode, "%o", mount->mode);
        snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)mount->bytes);
        snprintf(uid, sizeof uid, "%u", outside_uid);
        snprintf(gid, sizeof gid, "%u", outside_gid);
        const char *settings[] = {"mode", mode, "size", bytes, "uid", uid, "gid", gid, NULL};
        cleanup_fd int tmpfs = make_mount("tmpfs", settings, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, failure);
        return tmpfs < 0 ? tmpfs : attach(tmpfs, target, mount->target, failure);
}

/* Covers proc/NAME: a folder by an empty read-only one, a file by /dev/null, as runc does. */
static int mask(int proc, const char *name, int empty, struct failure *failure)
{
        struct stat what;
        cleanup_fd int target = openat(proc, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

        if (target < 0)
                return errno == ENOENT ? 0 : fail(failure, "proc", errno, "%s: %s", name, strerror(errno));
        if (fstat(target, &what))
                return fail(failure, "proc", errno, "%s: %s", name, strerror(errno));
        cleanup_fd int cover = S_ISDIR(what.st_mode) ? clone_tree(empty, "", MOUNT_ATTR_RDONLY, failure)
                                                     : clone_tree(AT_FDCWD, "/dev/null", MOUNT_ATTR_NOSUID, failure);
        return cover < 0 ? cover : attach(cover, target, name, failure);
}

static int make_read_only(int proc, const char *name, struct failure *failure)
{
        cleanup_fd int target = openat(proc, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);

        if (target < 0)
                return errno == ENOENT ? 0 : fail(failure, "proc", errno, "%s: %s", name, strerror(errno));
        cleanup_fd int tree = clone_tree(
                target, "", MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, failure);
        return tree < 0 ? tree : attach(tree, target, name, failure);
}

static int apply_proc(int target, const struct mount_op *mount, struct failure *failure)
{
        static const char *const empty_settings[] = {"mode", "0555", "nr_inodes", "1", NULL};
        cleanup_fd int proc =
                make_mount("proc", NULL, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, failure);

        if (proc < 0)
                return proc;
        int failed = attach(proc, target, mount->target, failure);
        if (failed)
                return failed;
        cleanup_fd int empty = make_mount("tmpfs", empty_settings,
                                          MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
                                          failure);
        if (empty < 0)
                return empty;
        for (size_t i = 0; !failed && i < sizeof masked / sizeof *masked; i++)
                failed = mask(proc, masked[i], empty, failure);
        for (size_t i = 0; !failed && i < sizeof read_only / sizeof *read_only; i++)
                failed = make_read_only(proc, read_only[i], failure);
        return failed;
}

/* The host's node, bound: without privilege no node can be made (mknod(2)), so both ways do the same. */
static int bind_device(int dev, const char *name, struct failure *failure)
{
        char source[32];
        struct stat what;

        snprintf(source, sizeof source, "/dev/%s", name);
        cleanup_fd int tree = clone_tree(AT_FDCWD, source, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, failure);
        if (tree < 0)
                return tree;
        if (fstat(tree, &what) || !S_ISCHR(what.st_mode))
                return fail(failure, "dev", ENODEV, "%s of the host is no character device", source);
        cleanup_fd int target = openat(dev, name, O_RDONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0444);
        if (target < 0)
                return fail(failure, "dev", errno, "making %s: %s", source, strerror(errno));
        return attach(tree, target, source, failure);
}

static int add_folder(int dev, const char *name, const char *type, const char *const *settings, struct failure *failure)
{
        if (mkdirat(dev, name, 0755))
                return fail(failure, "dev", errno, "making /dev/%s: %s", name, strerror(errno));
        cleanup_fd int target = openat(dev, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (target < 0)
                return fail(failure, "dev", errno, "opening /dev/%s: %s", name, strerror(errno));
        /* devpts nodes are what the mount is for, so it can't be nodev */
        unsigned int nodev = strcmp(type, "devpts") == 0 ? 0 : MOUNT_ATTR_NODEV;
        cleanup_fd int mount = make_mount(type, settings, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC | nodev, failure);
        return mount < 0 ? mount : attach(mount, target, name, failure);
}

static int apply_dev(int target, const struct mount_op *mount, struct failure *failure)
{
        static const char *const dev_settings[] = {"mode", "0755", "size", "64k", NULL};
        static const char *const pts_settings[] = {"ptmxmode", "0666", "mode", "0620", NULL};
        static const char *const shm_settings[] = {"mode", "1777", NULL};
        struct mount_attr change = {.attr_set = MOUNT_ATTR_RDONLY};
        cleanup_fd int dev = make_mount("tmpfs", dev_settings, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, failure);

        if (dev < 0)
                return dev;
        int failed = attach(dev, target, mount->target, failure);
        for (size_t i = 0; !failed && i < sizeof devices / sizeof *devices; i++)
                failed = bind_device(dev, devices[i], failure);
        if (!failed)
                failed = add_folder(dev, "pts", "devpts", pts_settings, failure);
        if (!failed)
                failed = add_folder(dev, "shm", "tmpfs", shm_settings, failure);
        for (size_t i = 0; !failed && i < sizeof device_links / sizeof *device_links; i++)
                if (symlinkat(device_links[i].target, dev, device_links[i].name))
                        failed = fail(failure, "dev", errno, "making /dev/%s: %s", device_links[i].name, strerror(errno));
        if (!failed && sys_mount_setattr(dev, "", AT_EMPTY_PATH, &change))
                failed = fail(failure, "dev", errno, "making /dev read-only: %s", strerror(errno));
        return failed;
}

int mounts_apply(int root, const struct mount_op *mount, const struct spec *spec, const struct ids *ids,
                 struct failure *failure)
{
        cleanup_fd int target = open_target(root, mount->target, failure);

        if (target < 0)
                return target;
        switch (mount->kind) {
        case OP_RO_BIND:
                return apply_bind(target, mount, failure);
        case OP_TMPFS:
                return apply_tmpfs(target, mount, spec, ids, failure);
        case OP_PROC:
                return apply_proc(target, mount, failure);
        case OP_DEV:
                return apply_dev(target, mount, failure);
        }
        return fail(failure, "mount", EINVAL, "unknown kind of mount %d", (int)mount->kind);
}
