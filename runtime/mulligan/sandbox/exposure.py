"""Exposure: which of the host's folders are to be seen inside, so that every program on PATH runs.

Knows the host's folders by looking at names, symlinks and first lines; reads no other content. Gives binds and symlinks.
What is exposed is decided by an install's *shape*: a folder on PATH named bin belongs to a prefix, and of a prefix only
the parts that hold programs and libraries are shown. Never shown: a home folder or a parent of one, the store, keys.

A program needs more than its own file: a shim execs an interpreter that lies elsewhere, a virtual environment names its
home, a symlink leads to another prefix. So each is followed until nothing new turns up.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from mulligan.model.ids import parent

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SYSTEM: Final = ("usr", "opt", "bin", "sbin", "nix")
_UNSTATEFUL: Final = ("/proc", "/dev", "/sys", "/run", "/etc")
_BINS: Final = ("bin", "sbin", "shims", "libexec", ".bin", "scripts", "Scripts", "cmd")
# What an install prefix shows of itself when nothing says that all of it is an install.
_PARTS: Final = (
    "bin", "sbin", "lib", "lib32", "lib64", "libexec", "share", "include", "versions", "shims", "plugins", "Cellar", "opt",
    "conda-meta", "toolchains", "candidates", "ssl", "envs", "pyvenv.cfg", "version", "VERSION", "release", "settings.toml",
)  # fmt: skip
# Files that show that a folder is an install as a whole: of a virtual environment, conda, a JDK, Go, Node, pyenv and kin.
_WHOLE: Final = (
    ("pyvenv.cfg",), ("conda-meta",), ("release", "lib/modules"), ("VERSION", "pkg"), ("versions", "libexec", "bin"),
    ("toolchains", "settings.toml"), ("node_modules", "bin/node"),
)  # fmt: skip
_SECRETS: Final = frozenset((
    ".ssh", ".aws", ".gnupg", ".gcloud", ".azure", ".kube", ".docker", ".netrc", ".pypirc", ".npmrc", ".git-credentials",
    ".env", "credentials", "credentials.toml", "credentials.json", ".credentials", ".password-store", ".config",
))  # fmt: skip
_NEVER_WITHIN: Final = frozenset((".ssh", ".aws", ".gnupg", ".kube", ".docker", ".password-store"))
_SCRIPT_BYTES: Final = 8192
_PATHS_IN_SCRIPT: Final = re.compile(rb"(?<![\w.$/-])/[\w.+@~-]+(?:/[\w.+@~-]+)+")
_MAX_LINKS: Final = 40


class Exposure:
    """Collects what must be seen. `homes` and `store` are folders whose whole must never be."""

    def __init__(self, *, homes: Iterable[str], store: str, rustup_home: str | None = None) -> None:
        self.binds: dict[str, str] = {}  # guest path -> host path
        self.links: dict[str, str] = {}  # guest path -> target
        self._homes = frozenset(homes)
        self._closed = (*self._homes, store)
        self._store = store
        self._rustup_home = rustup_home
        self._seen: set[str] = set()

    # ------------------------------------------------------------------------------------------- the system

    def add_system(self) -> None:
        """The host's system folders; a symlink among them (/bin) stays one."""
        tops = [f"/{name}" for name in sorted(os.listdir("/")) if name in SYSTEM or name.startswith("lib")]
        for path in tops:
            if os.path.isdir(path) and not os.path.islink(path):
                self._bind(path, path)
        for path in tops:
            if os.path.islink(path) and os.path.isdir(path):
                self.links[path] = os.readlink(path)
                real = os.path.realpath(path)
                if not self.shows(real):
                    self._bind(real, real)

    def _bind(self, source: str, target: str) -> None:
        """Show a folder; around a closed folder that lies in it, all else is shown piece by piece."""
        if any(target == at or target.startswith(f"{at}/") for at in self.binds):
            return
        within = [one for one in self._closed if one == source or one.startswith(f"{source.rstrip('/')}/")]
        if not within:
            for below in [at for at in self.binds if at.startswith(f"{target}/")]:
                del self.binds[below]
            self.binds[target] = source
        elif source not in within:
            for name in sorted(_names(source)):
                path = os.path.join(source, name)
                if os.path.islink(path):
                    self.links[f"{target}/{name}"] = os.readlink(path)
                elif os.path.isdir(path):
                    self._bind(path, f"{target}/{name}")

    def skeleton_links(self) -> dict[str, str]:
        """The symlinks to make in the skeleton: those that no bind and no copied folder brings along."""
        return {at: to for at, to in sorted(self.links.items()) if not self.shows(at) and not at.startswith("/etc/")}

    # ------------------------------------------------------------------------------------------- tools on PATH

    def add_path(self, folders: Sequence[str]) -> None:
        """Every folder of a PATH, with what its programs need."""
        for folder in folders:
            if os.path.isdir(folder):
                self._pass_links(folder)
                real = os.path.realpath(folder)
                if not self.shows(real):
                    self._add_prefix(real)
                self._add_programs(real)

    def offers(self, folder: str) -> bool:
        """Whether a folder of PATH has anything inside."""
        real = os.path.realpath(folder)
        return os.path.isdir(real) and (self.shows(real) or any(at.startswith(f"{real}/") for at in self.binds))

    def shows(self, path: str) -> bool:
        """Whether the path lies in what is already shown."""
        return any(path == at or path.startswith(f"{at}/") for at in self.binds)

    def add_file(self, path: str) -> None:
        """A file or folder that something needs: with its prefix, when it lies in one, else alone."""
        self._pass_links(path)
        real = os.path.realpath(path)
        if self.shows(real) or not os.path.exists(real) or self._is_private(real):
            return
        folder = real if os.path.isdir(real) else parent(real)
        if PurePosixPath(folder).name in _BINS:
            self._add_prefix(folder)
            self._add_programs(folder)
        elif any(_is_whole(up) for up in _ancestors(folder)):
            self._add_prefix(f"{next(up for up in _ancestors(folder) if _is_whole(up))}/bin")
        elif not os.path.isdir(real):
            self._bind(real, real)
        if not self.shows(real) and not os.path.isdir(real):
            self._bind(real, real)

    def _add_prefix(self, folder: str) -> None:
        """The install prefix of a folder of programs, as far as it may be shown."""
        if self._is_private(folder) or folder in self._seen:
            return
        self._seen.add(folder)
        prefix = parent(folder)
        if PurePosixPath(folder).name not in _BINS or self._is_home_like(prefix):
            self._bind(folder, folder) if not self._is_home_like(folder) else self._bind_programs(folder)
        elif folder.endswith("/node_modules/.bin") or (_is_whole(prefix) and not _SECRETS & set(_names(prefix))):
            self._bind(prefix, prefix)
        else:
            parts = _PARTS if PurePosixPath(prefix).name != ".local" else ("lib", "lib64", "libexec")
            for part in dict.fromkeys((PurePosixPath(folder).name, *parts)):
                path = f"{prefix}/{part}"
                if os.path.exists(path):
                    self._bind(path, path) if not os.path.islink(path) else self._pass_links(path)
        self._add_companions(prefix)

    def _bind_programs(self, folder: str) -> None:
        """PATH names a home folder itself: only the programs in it are shown, one by one."""
        for name in _names(folder):
            path = f"{folder}/{name}"
            if os.path.isfile(path) and os.access(path, os.X_OK) and not os.path.islink(path):
                self._bind(path, path)

    def _add_companions(self, prefix: str) -> None:
        """What kinds of installs need besides their prefix."""
        for home in _config_values(f"{prefix}/pyvenv.cfg", ("home", "base-prefix", "base-exec-prefix")):
            self.add_file(home)
        if os.path.exists(f"{prefix}/bin/rustup"):
            rustup = self._rustup_home or f"{parent(prefix)}/.rustup"
            if os.path.isdir(rustup) and not self._is_home_like(rustup):
                self._pass_links(rustup)
                self._bind(os.path.realpath(rustup), os.path.realpath(rustup))
        for name in _names(f"{prefix}/versions"):
            path = f"{prefix}/versions/{name}"
            if os.path.islink(path):
                self.add_file(f"{os.path.realpath(path)}/bin")

    # ------------------------------------------------------------------------------------------- what programs need

    def _add_programs(self, folder: str) -> None:
        """Follow the symlinks and the scripts of a folder of programs."""
        if f"programs:{folder}" in self._seen:
            return
        self._seen.add(f"programs:{folder}")
        system = folder.startswith(("/usr/", "/bin", "/sbin"))
        try:
            rows = sorted(os.scandir(folder), key=lambda row: row.name)
        except OSError:
            return
        for row in rows:
            if row.is_symlink():
                real = os.path.realpath(row.path)
                if not self.shows(real):
                    self.add_file(row.path)
                if not system or not real.startswith("/usr/"):
                    self._add_script(real)
            elif not system or folder == "/usr/local/bin":
                self._add_script(row.path)

    def _add_script(self, path: str) -> None:
        """A script's interpreter, and the programs that it names by their full path."""
        text = _script(path)
        if text is None:
            return
        first, _, rest = text.partition(b"\n")
        for raw in (*first[2:].split()[:2], *_PATHS_IN_SCRIPT.findall(rest)):
            named = os.fsdecode(raw)
            if named.startswith("/") and not self.shows(named) and _is_program(named):
                self.add_file(named)

    def _pass_links(self, path: str) -> None:
        """Symlinks on the way to a path, outside of what is shown as it is, are made in the skeleton too."""
        for _ in range(_MAX_LINKS):
            at = ""
            for part in PurePosixPath(path).parts[1:]:
                at = f"{at}/{part}"
                if os.path.islink(at):
                    if not self.shows(at):
                        self.links[at] = os.readlink(at)
                    path = os.path.normpath(os.path.join(parent(at), os.readlink(at), os.path.relpath(path, at)))
                    break
            else:
                return

    # ------------------------------------------------------------------------------------------- what may not be shown

    def _is_private(self, path: str) -> bool:
        if path.startswith(_UNSTATEFUL) and any(path == top or path.startswith(f"{top}/") for top in _UNSTATEFUL):
            return True
        if path == self._store or path.startswith(f"{self._store}/"):
            return True
        return bool(_NEVER_WITHIN & set(PurePosixPath(path).parts))

    def _is_home_like(self, path: str) -> bool:
        """Whether a folder is no install prefix but a place where people and programs keep all kinds of things."""
        if path in self._homes or path.count("/") <= 1:
            return True
        name = PurePosixPath(path).name
        return name in (".config", ".cache", "Documents", "Desktop") or (name == "share" and ".local" in path)


def _ancestors(path: str) -> list[str]:
    out = []
    while path.count("/") > 1:
        out.append(path)
        path = parent(path)
    return out


def _is_whole(prefix: str) -> bool:
    return any(all(os.path.exists(f"{prefix}/{name}") for name in group) for group in _WHOLE)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _is_program(path: str) -> bool:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(status.st_mode) and bool(status.st_mode & 0o111)


def _script(path: str) -> bytes | None:
    """The text of a small script, or None for what is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode) or os.pread(fd, 2, 0) != b"#!":
            return None
        return os.pread(fd, _SCRIPT_BYTES, 0)
    finally:
        os.close(fd)


def _config_values(path: str, names: Sequence[str]) -> list[str]:
    """Absolute paths that a `key = value` file has for some keys."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            rows = [line.partition("=") for line in file.read(_SCRIPT_BYTES).splitlines()]
    except OSError:
        return []
    return [value.strip() for key, _, value in rows if key.strip() in names and value.strip().startswith("/")]
