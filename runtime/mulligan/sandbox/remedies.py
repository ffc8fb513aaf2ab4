"""Remedies: what a person can change when the kernel refuses what a sandbox needs. Knows the kernel's switches."""

from __future__ import annotations

import errno
from pathlib import Path

_CANNOT_MOUNT = (errno.EINVAL, errno.ENODEV, errno.EOPNOTSUPP, errno.EXDEV)


def remedy_for(operation: str, number: int) -> str:
    """What a person can do when the tracer says that the kernel refused an operation; "" when nothing is known."""
    userns = operation in ("userns", "namespaces", "idmap")
    if userns and number in (errno.EPERM, errno.EACCES, errno.ENOSPC, errno.EUSERS, errno.EINVAL):
        return userns_remedy()
    if number in (errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN):
        return "the machine has run out of a resource (memory, processes, namespaces or open files): see `mulligan doctor`"
    if operation in ("mount", "overlay", "upper") and number in _CANNOT_MOUNT:
        return "keep the store on a file system that overlayfs can write to (ext4, xfs, btrfs, tmpfs): set MULLIGAN_HOME"
    if operation == "mount" and number in (errno.EPERM, errno.EACCES):
        return "mounting is refused here; inside a container, allow it in its security profile"
    if operation == "handoff":
        return "a memory file can't be run here: see `sysctl vm.memfd_noexec`, which must be 0 or 1"
    if operation in ("ptrace", "seize", "trace"):
        return "ptrace is refused here: see kernel.yama.ptrace_scope, and the container's seccomp profile"
    return "`mulligan doctor` shows what this machine offers"


def userns_remedy() -> str:
    """What keeps user namespaces from being made here, as far as the kernel's switches tell."""
    if read_switch("user/max_user_namespaces") == "0":
        return "allow user namespaces: `sysctl user.max_user_namespaces=15000`"
    if read_switch("kernel/unprivileged_userns_clone") == "0":
        return "allow user namespaces: `sysctl kernel.unprivileged_userns_clone=1`"
    if read_switch("kernel/apparmor_restrict_unprivileged_userns") == "1":
        return "AppArmor refuses user namespaces: `sysctl kernel.apparmor_restrict_unprivileged_userns=0`"
    return "user namespaces are refused here; inside a container, allow them in its security profile"


def read_switch(name: str) -> str | None:
    """The value of a kernel switch below /proc/sys, None where the kernel has no such switch."""
    try:
        return Path("/proc/sys", name).read_text(encoding="ascii").strip()
    except OSError:
        return None
