"""The build hook of the wheel: runs `make -C tracer` and puts the static tracer at `mulligan/_bin/mulligan-tracer`.

Knows hatchling's hook interface and the names of the packages that bring a C compiler. When something is missing, the
installation ends with one sentence that names what to install, and no traceback.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

if TYPE_CHECKING:
    from collections.abc import Mapping

BINARY = "mulligan/_bin/mulligan-tracer"

# The tracer is linked statically, so a C library to link with is needed besides the compiler.
INSTALL = {
    "apt-get": "apt-get install gcc libc6-dev make",
    "dnf": "dnf install gcc glibc-static make",
    "zypper": "zypper install gcc glibc-devel-static make",
    "pacman": "pacman -S gcc make",
    "apk": "apk add gcc musl-dev linux-headers make",
}


class TracerHook(BuildHookInterface[Any]):
    """Builds the tracer before the wheel is packed; an editable install uses the one in the source tree."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the tracer and, unless the install is editable, add it to the wheel."""
        binary = Path(self.root, "runtime", BINARY)
        build_tracer(Path(self.root), os.environ)
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-linux_x86_64"  # no extension module, one static executable
        if version != "editable":
            build_data["force_include"][str(binary)] = BINARY


def build_tracer(root: Path, environ: Mapping[str, str]) -> None:
    """Run make for the tracer of the source tree `root`, or end the process with one sentence."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        fail(f"Mulligan's tracer runs on Linux on x86-64 only, and this is {sys.platform} on {platform.machine()}.")
    compiler = find_compiler(environ)
    if compiler is None:
        fail(f"Mulligan's tracer needs a C compiler: install it with `{how_to_install()}`.")
    make = shutil.which("make", path=environ.get("PATH"))
    if make is None:
        fail(f"Mulligan's tracer needs make: install it with `{how_to_install()}`.")
    # Warnings are for who works on the tracer: a newer compiler's must not stop an installation.
    command = [make, "-C", str(root / "tracer"), f"CC={compiler}", "WARNINGS=-Wall"]
    done = subprocess.run(command, env=dict(environ), capture_output=True, text=True, errors="replace", check=False)
    if done.returncode == 0:
        return
    said = done.stdout + done.stderr
    if "cannot find -lc" in said or "stdio.h" in said or "linux/" in said:
        fail(f"Mulligan's tracer needs the C library to link with: install it with `{how_to_install()}`.")
    fail(f"{said}\nMulligan's tracer could not be built: `make -C tracer` ended with status {done.returncode}, see above.")


def find_compiler(environ: Mapping[str, str]) -> str | None:
    """The C compiler to use: `$CC`, else the first one there is."""
    named = environ.get("CC")
    candidates = [named.split()[0]] if named and named.split() else ["gcc", "cc", "clang"]  # make's own default is gcc
    for candidate in candidates:
        if shutil.which(candidate, path=environ.get("PATH")):
            return named or candidate
    return None


def how_to_install() -> str:
    """The command that installs compiler, C library and make here."""
    for tool, command in INSTALL.items():
        if shutil.which(tool):
            return command
    return INSTALL["apt-get"]


def fail(sentence: str) -> NoReturn:
    """End the build; pip shows what was printed."""
    sys.exit(sentence)
