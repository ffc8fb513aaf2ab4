"""The host base: the host's own system folders, read-only, over a small skeleton. Nothing to download, nothing to set up.

Knows which files of /etc are harmless and needed, and what environment an action starts with. The skeleton is one sealed
layer: the folders of a root file system, places to mount on, and copies from /etc. It is named by a digest of all that
goes into it, so sessions share it, and a host that has changed gets another one.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from mulligan.model.ids import GuestPath, HostPath, LayerId, parent, prefixes
from mulligan.model.layer import Entry, Layer
from mulligan.sandbox.base import UNSTATEFUL, WORKSPACE, Base
from mulligan.sandbox.exposure import Exposure
from mulligan.sandbox.mounts import HOSTNAME
from mulligan.sandbox.writing import LayerWriter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mulligan.sandbox.layer import LayerStore

_SKELETON_VERSION: Final = 2
_EPOCH_NS: Final = 1_700_000_000 * 10**9  # the time of what is made, not copied: the same in every skeleton
DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_PASSED_ON: Final = ("LANG", "LANGUAGE", "TERM", "TZ")
_MAX_FILE: Final = 16 << 20

# Of /etc, what programs need and nobody keeps a secret in. Names ending in * are prefixes.
_ETC: Final = (
    "alternatives", "bash.bashrc", "bash_completion.d", "bashrc", "ca-certificates", "ca-certificates.conf", "crypto-policies",
    "debian_version", "default/locale", "emacs", "ethertypes", "fedora-release", "fonts", "gai.conf", "gdb", "ghostscript",
    "glvnd", "groff", "gprofng.rc", "host.conf", "ImageMagick*", "inputrc", "issue", "java*", "ld.so.cache", "ld.so.conf",
    "ld.so.conf.d", "locale.alias", "locale.conf", "localtime", "login.defs", "lsb-release", "magic", "magic.mime", "mailcap",
    "manpath.config", "maven", "mime.types", "netconfig", "networks", "OpenCL", "openmpi", "os-release", "papersize", "perl",
    "php", "pki/ca-trust", "pki/tls/certs", "pki/tls/cert.pem", "pki/tls/openssl.cnf", "postgresql-common", "profile",
    "profile.d", "protocols", "python*", "R", "redhat-release", "rpc", "services", "sgml", "shells", "skel", "ssl/cert.pem",
    "ssl/certs", "ssl/openssl.cnf", "terminfo", "texmf", "timezone", "vim", "xml", "zsh",
)  # fmt: skip
_NEVER: Final = ("settings.xml", "settings-security.xml", "private", "pgpass")
_FOLDERS: Final = ("/etc", "/home", "/media", "/mnt", "/run", "/srv", "/var", "/var/cache", "/var/lib", "/var/log", *UNSTATEFUL)
_NSSWITCH: Final = "".join(
    f"{name}: {how}\n"
    for name, how in (
        ("passwd", "files"), ("group", "files"), ("shadow", "files"), ("hosts", "files dns"), ("networks", "files"),
        ("protocols", "files"), ("services", "files"), ("ethers", "files"), ("rpc", "files"),
    )
)  # fmt: skip
_HOSTS: Final = f"127.0.0.1 localhost\n127.0.1.1 {HOSTNAME}\n::1 localhost ip6-localhost ip6-loopback\n"


@dataclass(frozen=True, slots=True)
class _Item:
    """One object of the skeleton: made from `data`, or a copy of `source`, which stood at this time and size."""

    entry: Entry
    data: bytes = b""
    source: str = ""


@dataclass(frozen=True, slots=True)
class _User:
    """Who the guest is, as /etc/passwd says it."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str


def build_host_base(store: LayerStore, environ: Mapping[str, str]) -> tuple[Base, Layer]:
    """The base over this host for a user with this environment, with its skeleton made or found in the store."""
    ids = store.ids
    exposure = Exposure(
        homes=_homes(environ), store=os.path.realpath(store.root.parent), rustup_home=environ.get("RUSTUP_HOME")
    )
    exposure.add_system()
    folders = [folder for folder in environ.get("PATH", DEFAULT_PATH).split(":") if folder.startswith("/")]
    exposure.add_path(folders)
    name = _user_name(ids.uid)
    user = _User(name, ids.uid, ids.gid, _home_inside(ids.uid, name, environ), _shell(exposure))
    items = _items(exposure, user)
    skeleton = _skeleton(store, items)
    base = Base(
        kind="host",
        skeleton=skeleton.id,
        binds=tuple((HostPath(source), GuestPath(target)) for target, source in sorted(exposure.binds.items())),
        env=_environment(environ, exposure, folders, user),
        home=GuestPath(user.home),
        shell=user.shell,
        ids=ids,
    )
    return base, skeleton


# ---------------------------------------------------------------------------------------------- who and where


def _user_name(uid: int) -> str:
    if uid == 0:
        return "root"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user{uid}"


def _home_inside(uid: int, name: str, environ: Mapping[str, str]) -> str:
    """An empty folder inside, under the path the user knows as home, unless that is a place of the system."""
    if uid == 0:
        return "/root"
    try:
        listed = pwd.getpwuid(uid).pw_dir
    except KeyError:
        listed = ""
    for home in (environ.get("HOME", ""), listed):
        plain = home.startswith("/") and os.path.normpath(home) == home and home.isprintable()
        if plain and home.startswith(("/home/", "/var/lib/", "/Users/", "/srv/", "/data/")) and os.path.isdir(home):
            return home
    return f"/home/{name}"


def _homes(environ: Mapping[str, str]) -> set[str]:
    """The host's home folders: never shown as a whole."""
    homes = {"/root", environ.get("HOME", "/root"), *(user.pw_dir for user in pwd.getpwall() if _is_person(user.pw_uid))}
    return {os.path.realpath(home) for home in homes if home.startswith("/") and os.path.realpath(home) != "/"}


def _is_person(uid: int) -> bool:
    return uid == 0 or 1000 <= uid < 65_534  # noqa: PLR2004 - as in login.defs(5)


def _shell(exposure: Exposure) -> str:
    for path in ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash", "/bin/sh"):
        if os.path.exists(path) and exposure.shows(os.path.realpath(path)):
            return path
    return "/bin/sh"


def _environment(environ: Mapping[str, str], exposure: Exposure, folders: list[str], user: _User) -> dict[str, str]:
    """What every action is launched with: a short list, so that no secret of the caller's gets in."""
    path = ":".join(dict.fromkeys(folder for folder in folders if exposure.offers(folder)))
    env = {"PATH": path or DEFAULT_PATH, "HOME": user.home, "USER": user.name, "LOGNAME": user.name, "SHELL": user.shell}
    env |= {key: value for key, value in environ.items() if key in _PASSED_ON or key.startswith("LC_")}
    rustup = next((at for at in exposure.binds if at.endswith("/.rustup")), None)
    if rustup and rustup != f"{user.home}/.rustup":
        env["RUSTUP_HOME"] = rustup  # its proxies would look below the home folder
    return env


# ---------------------------------------------------------------------------------------------- the skeleton


def _items(exposure: Exposure, user: _User) -> dict[str, _Item]:
    """All objects of the skeleton by path, parents first."""
    items: dict[str, _Item] = {}
    uid, gid = user.uid, user.gid

    def folder(path: str, mode: int = 0o755) -> None:
        for above in (*prefixes(path), path):
            if above not in items and above != "/":
                items[above] = _Item(Entry("dir", mode if above == path else 0o755, uid, gid, mtime_ns=_EPOCH_NS))

    def text(path: str, content: str) -> None:
        data = content.encode("utf-8", "surrogateescape")
        items[path] = _Item(Entry("file", 0o644, uid, gid, len(data), _EPOCH_NS), data)

    def link(path: str, target: str) -> None:
        folder(parent(path))
        items.setdefault(path, _Item(Entry("link", 0o777, uid, gid, mtime_ns=_EPOCH_NS, target=target)))

    for path in _FOLDERS:
        folder(path)
    folder("/tmp", 0o1777)  # noqa: S108 - the guest's own
    folder("/var/tmp", 0o1777)  # noqa: S108
    folder("/root", 0o700)
    folder(user.home, 0o700)
    folder(WORKSPACE)
    link("/var/run", "/run")
    link("/etc/mtab", "../proc/self/mounts")
    people = [("root", 0, 0, "/root", user.shell), ("nobody", 65_534, 65_534, "/nonexistent", "/usr/sbin/nologin")]
    groups = [("root", 0), ("nogroup", 65_534)]
    if uid not in (0, 65_534):
        people.append((user.name, uid, gid, user.home, user.shell))
    if gid not in (0, 65_534):
        groups.append((user.name, gid))
    text("/etc/passwd", "".join(f"{who}:x:{u}:{g}:{who}:{at}:{sh}\n" for who, u, g, at, sh in people))
    text("/etc/group", "".join(f"{who}:x:{g}:\n" for who, g in groups))
    text("/etc/hostname", f"{HOSTNAME}\n")
    text("/etc/hosts", _HOSTS)
    text("/etc/nsswitch.conf", _NSSWITCH)
    text("/etc/resolv.conf", "")
    for path in _chosen_etc():
        _copy_etc(path, items, uid, gid)
    for path, target in exposure.skeleton_links().items():
        link(path, target)
    for path, source in sorted(exposure.binds.items()):
        if os.path.isdir(source):
            folder(path)
        else:
            folder(parent(path))
            text(path, "")
    return items


def _chosen_etc() -> list[str]:
    present = os.listdir("/etc")
    chosen = []
    for name in _ETC:
        if name.endswith("*"):
            chosen += [f"/etc/{one}" for one in present if one.startswith(name[:-1])]
        else:
            chosen.append(f"/etc/{name}")
    return sorted(chosen)


def _copy_etc(path: str, items: dict[str, _Item], uid: int, gid: int) -> None:
    """Take a file, a symlink or a folder of /etc, as far as everybody may read it."""
    waiting = [path]
    while waiting:
        at = waiting.pop()
        try:
            status = os.lstat(at)
        except OSError:
            continue
        if at in items or os.path.basename(at).startswith(_NEVER):
            continue
        for above in prefixes(at):
            if above not in items:
                items[above] = _Item(Entry("dir", 0o755, uid, gid, mtime_ns=_EPOCH_NS))
        mode = stat.S_IMODE(status.st_mode) & 0o755
        if stat.S_ISLNK(status.st_mode):
            items[at] = _Item(Entry("link", 0o777, uid, gid, mtime_ns=status.st_mtime_ns, target=os.readlink(at)))
        elif not status.st_mode & 0o004 or not os.access(at, os.R_OK):
            continue
        elif stat.S_ISDIR(status.st_mode):
            items[at] = _Item(Entry("dir", mode, uid, gid, mtime_ns=status.st_mtime_ns))
            waiting += [f"{at}/{name}" for name in os.listdir(at)]
        elif stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_FILE:
            items[at] = _Item(Entry("file", mode, uid, gid, status.st_size, status.st_mtime_ns), source=at)


def _skeleton(store: LayerStore, items: dict[str, _Item]) -> Layer:
    """The layer of these objects: the one in the store, or a new one."""
    digest = hashlib.blake2b(digest_size=12)
    digest.update(repr((_SKELETON_VERSION, store.ids, sorted(items.items()))).encode("utf-8", "backslashreplace"))
    layer = LayerId(f"base-{digest.hexdigest()}")
    found = store.find_shared(layer)
    if found is None:
        with store.begin() as opened:
            with LayerWriter(opened) as writer:
                for path, item in items.items():
                    _make(writer, path, item)
                writer.root(0o755, _EPOCH_NS)
                manifest = writer.finish()
            found = opened.seal_shared(layer, manifest)
    return found


def _make(writer: LayerWriter, path: str, item: _Item) -> None:
    if item.entry.kind == "dir":
        writer.folder(path, item.entry)
    elif item.entry.kind == "link":
        writer.node(path, item.entry)
    elif item.source:
        fd = os.open(item.source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            writer.file(path, item.entry, fd)
        finally:
            os.close(fd)
    else:
        writer.file(path, item.entry, item.data)
