"""What of the host is shown: all that programs on PATH need, and no home folder, key, store or secret."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from mulligan.sandbox.base import base_version, decode_base, encode_base
from mulligan.sandbox.exposure import Exposure
from mulligan.sandbox.hostbase import build_host_base

if TYPE_CHECKING:
    from pathlib import Path

    from mulligan.sandbox.layer import LayerStore


class Host:
    """A home folder made up for one test, outside of the system's folders."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home" / "user"
        self.home.mkdir(parents=True)
        self.store = self.home / ".local" / "share" / "mulligan"

    def program(self, path: str, text: str = "#!/bin/sh\n") -> str:
        """An executable below the home folder."""
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
        return str(file)

    def file(self, path: str, text: str = "secret") -> str:
        """Some other file below the home folder."""
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return str(file)

    def shown(self, *folders: str) -> Exposure:
        """What is shown with these folders of the home on PATH."""
        found = Exposure(homes=[str(self.home)], store=str(self.store))
        found.add_system()
        found.add_path([str(self.home / folder) for folder in folders])
        return found


@pytest.fixture
def host(tmp_path: Path) -> Host:
    """A made-up home folder with secrets in it."""
    made = Host(tmp_path)
    for path in (".ssh/id_ed25519", ".aws/credentials", ".netrc", "notes.txt", ".config/token"):
        made.file(path)
    return made


def assert_hidden(found: Exposure, host: Host) -> None:
    """Nothing private is shown, and the home folder itself is not."""
    for path in (".ssh/id_ed25519", ".aws/credentials", ".netrc", "notes.txt", ".config/token", "", ".local/share"):
        assert not found.shows(str(host.home / path).rstrip("/")), path


def test_the_system_is_shown() -> None:
    """/usr is bound; /bin is a symlink of the skeleton or bound itself."""
    found = Exposure(homes=["/root"], store="/nowhere")
    found.add_system()
    assert found.shows("/usr/bin/env")
    assert "/bin" in found.skeleton_links() or found.shows("/bin/sh")


def test_pyenv_shims_find_their_interpreters(host: Host) -> None:
    """Shims exec versions/*/bin/python: the whole of ~/.pyenv is shown, as an install."""
    shim = host.program(".pyenv/shims/python3", "#!/usr/bin/env bash\n")
    python = host.program(".pyenv/versions/3.12.1/bin/python3")
    library = host.file(".pyenv/versions/3.12.1/lib/python3.12/os.py")
    host.program(".pyenv/libexec/pyenv")
    host.program(".pyenv/bin/pyenv")
    found = host.shown(".pyenv/shims", ".pyenv/bin")
    assert all(found.shows(path) for path in (shim, python, library))
    assert_hidden(found, host)


def test_rustup_proxies_find_their_toolchains_and_no_token(host: Host) -> None:
    """~/.cargo/bin and ~/.rustup are shown; ~/.cargo/credentials.toml is not."""
    host.program(".cargo/bin/rustup")
    rustc = host.program(".rustup/toolchains/stable/bin/rustc")
    host.file(".rustup/settings.toml")
    token = host.file(".cargo/credentials.toml")
    found = host.shown(".cargo/bin")
    assert found.shows(rustc)
    assert found.shows(str(host.home / ".cargo/bin/rustup"))
    assert not found.shows(token)
    assert_hidden(found, host)


def test_a_virtual_environment_brings_the_python_it_was_made_from(host: Host) -> None:
    """pyvenv.cfg's home, and where bin/python leads, are shown; the project around the environment is not."""
    python = host.program("tools/python3.12/bin/python3.12")
    library = host.file("tools/python3.12/lib/python3.12/os.py")
    host.file("project/.venv/pyvenv.cfg", f"home = {host.home}/tools/python3.12/bin\nversion = 3.12\n")
    package = host.file("project/.venv/lib/python3.12/site-packages/x.py")
    (host.home / "project/.venv/bin").mkdir()
    (host.home / "project/.venv/bin/python").symlink_to(python)
    source = host.file("project/main.py")
    found = host.shown("project/.venv/bin")
    assert all(found.shows(path) for path in (python, library, package))
    assert not found.shows(source)
    assert_hidden(found, host)


def test_local_bin_shows_programs_and_what_their_symlinks_lead_to(host: Host) -> None:
    """~/.local/bin and lib are shown, ~/.local/share is not, but for an application's own environment that a link leads to."""
    host.file(".local/share/keyrings/login")
    tool = host.program(".local/share/pipx/venvs/tool/bin/tool")
    host.file(".local/share/pipx/venvs/tool/pyvenv.cfg", "home = /usr/bin\n")
    library = host.file(".local/lib/python3.12/site-packages/y.py")
    (host.home / ".local/bin").mkdir()
    (host.home / ".local/bin/tool").symlink_to(tool)
    found = host.shown(".local/bin")
    assert found.shows(tool)
    assert found.shows(library)
    assert not found.shows(str(host.home / ".local/share/keyrings/login"))
    assert_hidden(found, host)


def test_a_script_on_path_finds_its_interpreter_and_what_it_execs(host: Host) -> None:
    """A shebang and a program named by its full path are followed, wherever they lie."""
    interpreter = host.program("apps/lang/bin/lang")
    library = host.file("apps/lang/lib/prelude")
    wrapped = host.program("apps/other/run-me")
    host.program("bin/script", f"#!{interpreter} -x\n")
    host.program("bin/wrapper", f'#!/bin/sh\nexec {wrapped} "$@" < {host.home}/notes.txt\n')
    found = host.shown("bin")
    assert all(found.shows(path) for path in (interpreter, library, wrapped, str(host.home / "bin/script")))
    assert_hidden(found, host)


def test_node_versions_and_node_modules(host: Host) -> None:
    """Nvm's node is a prefix of bin and lib; node_modules/.bin brings node_modules, and not the project."""
    node = host.program(".nvm/versions/node/v20/bin/node")
    npm = host.file(".nvm/versions/node/v20/lib/node_modules/npm/index.js")
    host.program("web/node_modules/.bin/tsc")
    module = host.file("web/node_modules/typescript/lib.js")
    env = host.file("web/.env")
    found = host.shown(".nvm/versions/node/v20/bin", "web/node_modules/.bin")
    assert all(found.shows(path) for path in (node, npm, module))
    assert not found.shows(env)
    assert_hidden(found, host)


def test_a_home_folder_on_path_shows_its_programs_only(host: Host) -> None:
    """PATH may name the home folder itself: each program is shown, nothing else."""
    program = host.program("run")
    found = host.shown("")
    assert found.shows(program)
    assert_hidden(found, host)


def test_an_install_that_holds_the_store_shows_all_but_the_store(host: Host) -> None:
    """A store within an exposed prefix stays hidden."""
    program = host.program("conda/bin/python")
    host.file("conda/conda-meta/history")
    host.store = host.home / "conda" / "lib" / "mulligan"
    kept = host.file("conda/lib/mulligan/store.db")
    beside = host.file("conda/lib/python/os.py")
    found = host.shown("conda/bin")
    assert found.shows(program)
    assert found.shows(beside)
    assert not found.shows(kept)
    assert not found.shows(str(host.store))


def test_a_symlink_on_the_way_is_made_in_the_skeleton(host: Host) -> None:
    """A PATH folder behind a symlink is reachable under its own name."""
    host.program("sdk/17.0.1/bin/java")
    (host.home / "sdk/current").symlink_to("17.0.1")
    found = host.shown("sdk/current/bin")
    assert found.shows(str(host.home / "sdk/17.0.1/bin/java"))
    assert found.skeleton_links()[str(host.home / "sdk/current")] == "17.0.1"
    assert found.offers(str(host.home / "sdk/current/bin"))


def test_keys_are_not_shown_even_when_path_names_their_folder(host: Host) -> None:
    """~/.ssh on PATH is nonsense, and shows nothing."""
    host.program(".ssh/bin/tool")
    assert_hidden(host.shown(".ssh/bin", ".ssh"), host)


def test_the_host_base_has_a_clean_environment_and_no_secret(layers: LayerStore) -> None:
    """Of the caller's environment a short list passes; /etc has no shadow, no keys, no other users."""
    environ = {
        "PATH": "relative:/usr/bin:/nope:/bin",
        "HOME": "/root",
        "AWS_SECRET_ACCESS_KEY": "x",
        "LC_ALL": "C",
        "TERM": "xterm",
    }
    base, skeleton = build_host_base(layers, environ)
    assert base.env["PATH"] == "/usr/bin:/bin"
    assert "AWS_SECRET_ACCESS_KEY" not in base.env
    assert base.env["LC_ALL"] == "C"
    entries = skeleton.manifest.entries
    assert not {"/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh", "/etc/ssl/private", "/etc/gitconfig"} & set(entries)
    passwd = (layers.path(skeleton.id) / "etc/passwd").read_text()
    assert len(passwd.splitlines()) <= 3
    assert entries["/tmp"].mode == 0o1777
    assert not any(path.startswith("/root/") and entry.kind == "file" for path, entry in entries.items())


def test_the_skeleton_is_made_once_and_encodes(layers: LayerStore) -> None:
    """A second session finds the skeleton of the first, and a base survives its row."""
    base, skeleton = build_host_base(layers, {"PATH": "/usr/bin"})
    again, found = build_host_base(layers, {"PATH": "/usr/bin"})
    assert (base, skeleton) == (again, found)
    assert decode_base(encode_base(base)) == base
    assert os.listdir(layers.root) == [skeleton.id]


def test_files_of_the_base_are_versioned_by_time_size_and_inode(layers: LayerStore) -> None:
    """What lies under a bind has a version; what lies in layers, or is absent, has none."""
    base, _ = build_host_base(layers, {"PATH": "/usr/bin"})
    status = os.lstat("/usr/bin/env")
    assert base_version(base, "/usr/bin/env") == (status.st_mtime_ns, status.st_size, status.st_ino)
    assert base_version(base, "/etc/passwd") is None
    assert base_version(base, "/usr/bin/no-such-program") is None
