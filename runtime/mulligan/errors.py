"""Mulligan's own failures, sorted by whose fault they are.

Knows nothing of the rest of the package. A guest that exits 1 is data (`Outcome`), never one of these.
Each class owns the exit status of the command line (>= 100 and < 126, so that it can't be taken for an action's)
and a message that names operation, object, cause and remedy.
"""

from __future__ import annotations


class MulliganError(Exception):
    """Base of all of Mulligan's failures: one clear sentence and, where there is one, a remedy."""

    exit_code = 125

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.message}; {self.remedy}" if self.remedy else self.message


class UsageError(MulliganError):
    """The caller asked for something that can't be: a bad argument or option."""

    exit_code = 100


class NotFoundError(UsageError):
    """The session, action, base or path that was named does not exist."""

    exit_code = 101


class AlreadyExistsError(UsageError):
    """The name is taken."""

    exit_code = 102


class ConflictError(UsageError):
    """What was asked meets a concurrent change: a moved head, or a host file edited since its import."""

    exit_code = 103


class RepairFailedError(UsageError):
    """A replay failed, so the repair was not applied and the head stayed where it was."""

    exit_code = 104


class GivenUpError(UsageError):
    """The action or state is older than the oldest repairable point: its layer was given up to stay within a disk budget."""

    exit_code = 105


class HostError(MulliganError):
    """The machine lacks something or refused something; the remedy says what to change."""

    exit_code = 110


class DiskFullError(HostError):
    """No space (ENOSPC) or no quota (EDQUOT) left for the store."""

    exit_code = 111


class StoreError(MulliganError):
    """Our own data is damaged or was written by another version."""

    exit_code = 115


class SchemaVersionError(StoreError):
    """The store has a schema that this version does not read."""

    exit_code = 116


class InternalError(MulliganError):
    """A bug in Mulligan."""

    exit_code = 120


class TracerError(InternalError):
    """The tracer died, or spoke out of turn; the action failed and left nothing."""

    exit_code = 121


class InterruptedRunError(MulliganError):
    """The user interrupted (Ctrl-C, SIGTERM) before the action ended; nothing of it was kept."""

    exit_code = 122
