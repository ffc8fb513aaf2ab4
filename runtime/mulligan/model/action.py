"""Action: what is asked to run. Outcome: what came back. Both frozen; no rule of running is here."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mulligan.model.ids import ActionId

USUAL_UMASK: Final = 0o022
EMPTY_ENV: Mapping[str, str] = MappingProxyType({})

ActionKind = Literal["run", "patch"]


@dataclass(frozen=True, slots=True)
class Action:
    """What is asked to run: exactly one of `argv` and `shell` (for kind "run").

    `cwd` None and `env` give what differs from the state the session hands on (see `LaunchContext`). A "patch" action
    runs nothing: it is a correction asserted by a person (`patch_path` then has the content of its layer).
    """

    id: ActionId
    kind: ActionKind = "run"
    argv: tuple[str, ...] = ()
    shell: str | None = None
    cwd: str | None = None
    env: Mapping[str, str] = field(default_factory=lambda: EMPTY_ENV)
    stdin: bytes = b""
    timeout_s: float | None = None
    labels: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()  # declared keys, as text ("dat:/workspace/x", "out:a1")
    writes: tuple[str, ...] = ()
    patch_path: str | None = None

    @property
    def text(self) -> str:
        """The action as a person would type it, on one line."""
        if self.kind == "patch":
            return f"patch {self.patch_path}"
        return self.shell if self.shell is not None else shlex.join(self.argv)


@dataclass(frozen=True, slots=True)
class LaunchContext:
    """What an action is launched with from the state: the variables, working directory and umask that earlier actions left."""

    env: Mapping[str, str] = field(default_factory=lambda: EMPTY_ENV)
    cwd: str = "/workspace"
    umask: int = USUAL_UMASK


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came back. Exactly one of `exit_code` and `signal` is set, unless the program could not be started at all.

    Durations in milliseconds, memory in KiB. `started_ns`/`ended_ns` are CLOCK_REALTIME nanoseconds: the slot's window, which
    a replay keeps from the first execution; `duration_ms` is the wall time of this very one.
    """

    exit_code: int | None
    signal: str | None  # "SIGKILL"
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    timed_out: bool = False
    oom_killed: bool = False
    started_ns: int = 0
    ended_ns: int = 0
    duration_ms: float = 0.0
    user_ms: float = 0.0
    system_ms: float = 0.0
    max_rss_kib: int = 0
    killed_at_end: tuple[str, ...] = ()  # names of processes that outlived the command and were killed at the boundary

    @property
    def ok(self) -> bool:
        """Whether the command exited with status 0."""
        return self.exit_code == 0

    @property
    def shell_status(self) -> int:
        """The status as a shell would give it: the exit code, or 128 + the signal's number (see signal(7))."""
        if self.exit_code is not None:
            return self.exit_code
        import signal as signals  # noqa: PLC0415 - names to numbers only, kept out of import time

        return 128 + getattr(signals, self.signal or "", 0)
