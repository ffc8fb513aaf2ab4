/* System calls for which the C library may have no function yet (glibc has the mount ones since 2.36 only).
 *
 * <sys/mount.h> is not to be included beside this header: some releases of glibc define the same names as
 * <linux/mount.h> in another way. */
#pragma once

#include <linux/mount.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#ifndef MNT_DETACH
#define MNT_DETACH 2 /* umount2(2) */
#endif

static inline int sys_fsopen(const char *type, unsigned int flags)
{
        return (int)syscall(SYS_fsopen, type, flags);
}

static inline int sys_fsconfig(int fd, unsigned int command, const char *key, const void *value, int aux)
{
        return (int)syscall(SYS_fsconfig, fd, command, key, value, aux);
}

static inline int sys_fsmount(int fd, unsigned int flags, unsigned int attributes)
{
        return (int)syscall(SYS_fsmount, fd, flags, attributes);
}

static inline int sys_open_tree(int directory, const char *path, unsigned int flags)
{
        return (int)syscall(SYS_open_tree, directory, path, flags);
}

static inline int sys_move_mount(int from, const char *from_path, int to, const char *to_path, unsigned int flags)
{
        return (int)syscall(SYS_move_mount, from, from_path, to, to_path, flags);
}

static inline int sys_mount_setattr(int directory, const char *path, unsigned int flags, struct mount_attr *attributes)
{
        return (int)syscall(SYS_mount_setattr, directory, path, flags, attributes, sizeof *attributes);
}

static inline int sys_mount(const char *source, const char *target, const char *type, unsigned long flags,
                            const char *options)
{
        return (int)syscall(SYS_mount, source, target, type, flags, options);
}

static inline int sys_pivot_root(const char *new_root, const char *put_old)
{
        return (int)syscall(SYS_pivot_root, new_root, put_old);
}

static inline int sys_umount2(const char *target, int flags)
{
        return (int)syscall(SYS_umount2, target, flags);
}

static inline int sys_openat2(int directory, const char *path, uint64_t flags, uint64_t resolve)
{
        struct open_how how = {.flags = flags, .resolve = resolve};

        return (int)syscall(SYS_openat2, directory, path, &how, sizeof how);
}

static inline int sys_pidfd_send_signal(int pidfd, int signal)
{
        return (int)syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0);
}

static inline int sys_close_range(unsigned int first, unsigned int last, unsigned int flags)
{
        return (int)syscall(SYS_close_range, first, last, flags);
}

/* fork(2) with namespaces: no new stack, so the child goes on in a copy of the caller's memory. With CLONE_PIDFD in
 * `flags` the pidfd comes in *pidfd. (clone(2): the third argument is parent_tid on every architecture used here.) */
static inline pid_t sys_fork(unsigned long flags, int *pidfd)
{
        return (pid_t)syscall(SYS_clone, flags, NULL, pidfd, NULL, NULL);
}
