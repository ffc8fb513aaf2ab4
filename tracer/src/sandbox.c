#include "sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "cleanup.h"
#include "kernel.h"
#include "mounts.h"
#include "overlay.h"

/* From here on no mount of ours reaches the host, and none of the host's reaches us (mount_namespaces(7)). */
static int part_from_host(struct failure *failure)
{
        struct mount_attr change = {.propagation = MS_PRIVATE};

        if (sys_mount_setattr(AT_FDCWD, "/", AT_RECURSIVE, &change))
                return fail(failure, "mount", errno, "making mounts private: %s", strerror(errno));
        return 0;
}

/* A new network namespace has a loopback interface, down (network_namespaces(7)). */
static int raise_loopback(struct failure *failure)
{
        struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
        cleanup_fd int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

        if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request))
                return fail(failure, "network", errno, "raising the loopback interface: %s", strerror(errno));
        return 0;
}

/* pivot_root(".", ".") puts the old root over the new one, at the same place, from where it is taken off
 * (pivot_root(2), NOTES). */
static int change_root(int root, struct failure *failure)
{
        if (fchdir(root) || sys_pivot_root(".", ".") || sys_umount2(".", MNT_DETACH) || chdir("/"))
                return fail(failure, "mount", errno, "changing the root: %s", strerror(errno));
        return 0;
}

int sandbox_enter(const struct spec *spec, const struct ids *ids, struct failure *failure)
{
        int failed = part_from_host(failure);

        if (failed)
                return failed;
        cleanup_fd int root = overlay_mount(spec, ids, failure);
        if (root < 0)
                return root;
        for (size_t i = 0; !failed && i < spec->mount_count; i++)
                failed = mounts_apply(root, &spec->mounts[i], spec, ids, failure);
        if (!failed)
                failed = raise_loopback(failure);
        if (!failed && spec->hostname && sethostname(spec->hostname, strlen(spec->hostname)))
                failed = fail(failure, "hostname", errno, "%s: %s", spec->hostname, strerror(errno));
        return failed ? failed : change_root(root, failure);
}
