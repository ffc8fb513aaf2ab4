/* The options are what lets an upper directory stand later, as a lower, on *other* lowers: nothing in it may refer to
 * the layers it was made on. So no index, no metadata-only copies, no redirects (kernel: filesystems/overlayfs.rst,
 * "Sharing and copying layers"). `volatile` leaves out every sync: durability comes from sealing the layer alone. */
#include "overlay.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "cleanup.h"
#include "kernel.h"

static const struct {
        const char *key;
        const char *value; /* NULL: a flag */
        bool optional;     /* kernels that don't know it behave as wanted */
} options[] = {
        {"index", "off", false},     {"metacopy", "off", false},  {"redirect_dir", "nofollow", false},
        {"xino", "off", false},      {"nfs_export", "off", false}, {"uuid", "null", true},
        {"volatile", NULL, false},
};

/* The kernel's own explanation, if it left one (fsopen(2), "the message retrieval interface"). */
static void read_message(int context, char *text, size_t size)
{
        ssize_t got = read(context, text, size - 1);

        text[got > 0 ? got : 0] = '\0';
        text[strcspn(text, "\n")] = '\0';
}

static int set_option(int context, const char *key, const char *value, struct failure *failure)
{
        char message[256];

        if (!sys_fsconfig(context, value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG, key, value, 0))
                return 0;
        int error = errno;
        read_message(context, message, sizeof message);
        return fail(failure, "mount", error, "overlay option %s=%s: %s %s", key, value ? value : "", strerror(error),
                    message);
}

/* Gives the kernel a directory by descriptor. Before Linux 6.13 only a string will do, of at most 255 bytes; the
 * descriptor's name in /proc is one, however long the path is. */
static int set_directory(int context, const char *key, const char *path, struct failure *failure)
{
        cleanup_fd int directory = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        char name[64];

        if (directory < 0)
                return fail(failure, "mount", errno, "%s %s: %s", key, path, strerror(errno));
        if (!sys_fsconfig(context, FSCONFIG_SET_FD, key, NULL, directory))
                return 0;
        snprintf(name, sizeof name, "/proc/self/fd/%d", directory);
        if (!sys_fsconfig(context, FSCONFIG_SET_STRING, key, name, 0))
                return 0;
        int error = errno;
        read_message(context, name, sizeof name);
        return fail(failure, "mount", error, "overlay %s=%s: %s %s", key, path, strerror(error), name);
}

static int set_lowers(int context, const struct spec *spec, struct failure *failure)
{
        int failed = 0;

        for (size_t i = 0; !failed && i < spec->lower_count; i++)
                failed = set_directory(context, "lowerdir+", spec->lowers[i], failure);
        return failed;
}

static int set_options(int context, const struct ids *ids, struct failure *failure)
{
        for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
                int failed = set_option(context, options[i].key, options[i].value, failure);
                if (failed && !options[i].optional)
                        return failed;
        }
        /* trusted.* attributes are for root of the first user namespace only (xattr(7)). */
        return ids->privileged ? 0 : set_option(context, "userxattr", NULL, failure);
}

/* Before Linux 6.5 there is no `lowerdir+`, and a string given to fsconfig(2) has at most 255 bytes. mount(2) takes a
 * page of options; with descriptors' numbers for paths, relative to /proc/self/fd, it holds the 500 lowers that the
 * kernel allows, and no path needs quoting. The descriptors stay open until C has forked. */
static int format_old_options(const struct spec *spec, const struct ids *ids, char *text, size_t size,
                              struct failure *failure)
{
        size_t used = (size_t)snprintf(text, size, "%svolatile,index=off,metacopy=off,redirect_dir=nofollow,xino=off,"
                                       "nfs_export=off", ids->privileged ? "" : "userxattr,");
        size_t count = spec->lower_count + 2;

        for (size_t i = 0; i < count && used < size; i++) {
                const char *path = i == 0 ? spec->upper : i == 1 ? spec->work : spec->lowers[i - 2];
                const char *key = i == 0 ? ",upperdir=" : i == 1 ? ",workdir=" : i == 2 ? ",lowerdir=" : ":";
                int directory = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
                if (directory < 0)
                        return fail(failure, "mount", errno, "%s: %s", path, strerror(errno));
                used += (size_t)snprintf(text + used, size - used, "%s%d", key, directory);
        }
        if (used >= size)
                return fail(failure, "mount", E2BIG, "too many lower directories for this kernel: %zu", spec->lower_count);
        return 0;
}

static int mount_old_way(const struct spec *spec, const struct ids *ids, struct failure *failure)
{
        char text[4096];
        int failed = format_old_options(spec, ids, text, sizeof text, failure);

        if (failed)
                return failed;
        if (chdir("/proc/self/fd"))
                return fail(failure, "mount", errno, "/proc/self/fd: %s", strerror(errno));
        if (sys_mount("overlay", spec->upper, "overlay", MS_NOSUID | MS_NODEV, text))
                return fail(failure, "mount", errno, "overlay over %s: %s", spec->upper, strerror(errno));
        int root = open(spec->upper, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (root < 0)
                return fail(failure, "mount", errno, "opening the overlay: %s", strerror(errno));
        return root;
}

/* 0, or -errno; -EOPNOTSUPP when the kernel does not know `lowerdir+`. */
static int configure(int context, const struct spec *spec, const struct ids *ids, struct failure *failure)
{
        char message[256];
        int failed = set_lowers(context, spec, failure);

        if (failed == -EINVAL)
                return -EOPNOTSUPP;
        if (!failed)
                failed = set_directory(context, "upperdir", spec->upper, failure);
        if (!failed)
                failed = set_directory(context, "workdir", spec->work, failure);
        if (!failed)
                failed = set_options(context, ids, failure);
        if (failed || !sys_fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0))
                return failed;
        int error = errno;
        read_message(context, message, sizeof message);
        return fail(failure, "mount", error, "overlay over %s: %s %s", spec->upper, strerror(error), message);
}

static int mount_new_way(const struct spec *spec, const struct ids *ids, struct failure *failure)
{
        cleanup_fd int context = sys_fsopen("overlay", FSOPEN_CLOEXEC);

        if (context < 0)
                return fail(failure, "mount", errno, "fsopen overlay: %s", strerror(errno));
        int failed = configure(context, spec, ids, failure);
        if (failed)
                return failed;
        cleanup_fd int mount = sys_fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
        if (mount < 0)
                return fail(failure, "mount", errno, "fsmount overlay: %s", strerror(errno));
        if (sys_move_mount(mount, "", AT_FDCWD, spec->upper, MOVE_MOUNT_F_EMPTY_PATH))
                return fail(failure, "mount", errno, "attaching the overlay: %s", strerror(errno));
        return steal_fd(&mount);
}

/* An option that equals the module's default is not shown, so only what must not be there can be looked for, and
 * `upperdir`, which the kernel drops (for a read-only mount) when the work directory is of no use. */
static const char *unwanted_option(const char *line)
{
        static const char *const bad[] = {"index=on", "metacopy=on", "redirect_dir=on", "redirect_dir=follow",
                                          "xino=on", "nfs_export=on"};
        const char *super = strstr(line, " - overlay ");

        if (!super)
                return "another file system";
        for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
                if (strstr(super, bad[i]))
                        return bad[i];
        if (!strstr(super, ",upperdir="))
                return "no upperdir";
        /* newer kernels call it fsync=volatile */
        return strstr(super, ",volatile") || strstr(super, ",fsync=volatile") ? NULL : "no volatile";
}

static int check_options(const char *target, struct failure *failure)
{
        cleanup_free char *line = NULL;
        char resolved[64];
        size_t room = 0;
        int result = 0, found = 0;
        struct stat here;
        FILE *mounts = fopen("/proc/self/mountinfo", "re");

        if (!mounts || stat(target, &here)) {
                int error = errno;
                if (mounts)
                        fclose(mounts);
                return fail(failure, "mount", error, "checking the overlay's options: %s", strerror(error));
        }
        /* The third field is the device (proc_pid_mountinfo(5)); every overlay has one of its own. */
        snprintf(resolved, sizeof resolved, " %u:%u ", major(here.st_dev), minor(here.st_dev));
        while (!found && getline(&line, &room, mounts) > 0) {
                if (!strstr(line, resolved))
                        continue;
                found = 1;
                const char *unwanted = unwanted_option(line);
                if (unwanted)
                        result = fail(failure, "mount", EINVAL, "the overlay came out with %s", unwanted);
        }
        fclose(mounts);
        if (!found)
                return fail(failure, "mount", ENOENT, "the overlay is not in mountinfo");
        return result;
}

int overlay_mount(const struct spec *spec, const struct ids *ids, struct failure *failure)
{
        int root = mount_new_way(spec, ids, failure);

        if (root == -EOPNOTSUPP)
                root = mount_old_way(spec, ids, failure);
        if (root < 0)
                return root;
        int failed = check_options(spec->upper, failure);
        if (failed) {
                close(root);
                return failed;
        }
        return root;
}
