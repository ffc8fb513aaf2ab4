"""The JSON that others may rely on: the shapes of DESIGN.md, built from the model's nouns.

Knows the model. Every string of a guest goes through `put`: bytes that are not UTF-8 become U+FFFD, and the exact bytes
stand beside it in base64 under the same name with `_b64` (of a list: a list of the same length and order).
"""

from __future__ import annotations

import base64
import json
import sys
from typing import TYPE_CHECKING, Any

from mulligan.cli.render import echo
from mulligan.model.ids import b64, is_utf8, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mulligan.merge import MergeReport
    from mulligan.model.action import Action, Outcome
    from mulligan.model.footprint import Footprint
    from mulligan.model.hint import Hint
    from mulligan.model.plan import Plan, Reason, Report, Volatile
    from mulligan.model.record import Record

Json = dict[str, Any]

# The footprint's sets of paths, in the order they are told.
PATH_SETS = (
    "saw", "missed", "listed", "executed", "linked", "stats", "probed", "xattrs", "overwrote", "wrote", "removed"
)  # fmt: skip
READ_SETS = ("saw", "missed", "listed", "executed", "linked", "stats", "probed", "xattrs")


def put(into: Json, key: str, text: str | None) -> None:
    """Set a string that may hold bytes that are not UTF-8."""
    into[key] = None if text is None else shown(text)
    if text is not None and not is_utf8(text):
        into[f"{key}_b64"] = b64(text)


def put_all(into: Json, key: str, texts: Iterable[str]) -> None:
    """Set a list of such strings."""
    every = list(texts)
    into[key] = [shown(t) for t in every]
    if not all(is_utf8(t) for t in every):
        into[f"{key}_b64"] = [b64(t) for t in every]


def put_map(into: Json, key: str, values: Mapping[str, str]) -> None:
    """Set a mapping of such strings; the `_b64` twin holds only the values that need it."""
    into[key] = {shown(k): shown(v) for k, v in sorted(values.items())}
    odd = {shown(k): b64(v) for k, v in sorted(values.items()) if not is_utf8(v)}
    if odd:
        into[f"{key}_b64"] = odd


def put_bytes(into: Json, key: str, data: bytes | None) -> None:
    """Set the text of bytes; the exact bytes stand beside it when they are not UTF-8."""
    into[key] = None if data is None else data.decode("utf-8", "replace")
    if data is not None and into[key].encode() != data:
        into[f"{key}_b64"] = base64.b64encode(data).decode("ascii")


def reads_of(footprint: Footprint) -> frozenset[str]:
    """Every path the action relied on in some way."""
    return frozenset[str]().union(*(getattr(footprint, name) for name in READ_SETS))


def run_json(record: Record, session: str) -> Json:
    """What `run --json` prints. `reads` and `writes` count paths; `show` names them."""
    outcome, footprint = record.outcome, record.footprint
    out: Json = {
        "action": record.id,
        "session": session,
        "exit_code": outcome.exit_code,
        "signal": outcome.signal,
        "timed_out": outcome.timed_out,
        "oom_killed": outcome.oom_killed,
    }
    put_bytes(out, "stdout", outcome.stdout)
    put_bytes(out, "stderr", outcome.stderr)
    put_map(out, "outputs", record.outputs)
    out["truncated"] = outcome.stdout_truncated or outcome.stderr_truncated
    out["duration_ms"] = round(outcome.duration_ms, 3)
    out["reads"] = len(reads_of(footprint))
    out["writes"] = len(footprint.wrote | footprint.removed)
    out["complete"] = footprint.complete
    put_all(out, "incomplete_because", footprint.incomplete_because)
    return out


def log_json(record: Record) -> Json:
    """One line of `log --json`."""
    outcome = record.outcome
    out: Json = {"action": record.id, "revision": record.revision, "kind": record.action.kind}
    put(out, "command", record.action.text)
    put_all(out, "labels", record.action.labels)
    out["exit_code"] = outcome.exit_code
    out["signal"] = outcome.signal
    out["timed_out"] = outcome.timed_out
    out["duration_ms"] = round(outcome.duration_ms, 3)
    out["reads"] = len(reads_of(record.footprint))
    out["writes"] = len(record.footprint.wrote | record.footprint.removed)
    out["complete"] = record.footprint.complete
    out["layer"] = record.layer_id
    return out


def show_json(record: Record) -> Json:
    """What `show --json` prints."""
    return {
        "action": _action(record.action, record.revision),
        "outcome": _outcome(record.outcome),
        **_outputs(record),
        "footprint": _footprint(record.footprint),
        "umask": f"{record.launch.umask:04o}",
        "layer": record.layer_id,
    }


def _action(action: Action, revision: int) -> Json:
    out: Json = {"id": action.id, "revision": revision, "kind": action.kind}
    put_all(out, "argv", action.argv)
    put(out, "shell", action.shell)
    put(out, "cwd", action.cwd)
    put_map(out, "env", action.env)
    out["stdin_bytes"] = len(action.stdin)
    out["timeout_s"] = action.timeout_s
    put_all(out, "labels", action.labels)
    put_all(out, "reads", action.reads)
    put_all(out, "writes", action.writes)
    put(out, "patch_path", action.patch_path)
    return out


def _outputs(record: Record) -> Json:
    out: Json = {}
    put_map(out, "outputs", record.outputs)
    return out


def _outcome(outcome: Outcome) -> Json:
    out: Json = {"exit_code": outcome.exit_code, "signal": outcome.signal}
    put_bytes(out, "stdout", outcome.stdout)
    put_bytes(out, "stderr", outcome.stderr)
    out["stdout_truncated"] = outcome.stdout_truncated
    out["stderr_truncated"] = outcome.stderr_truncated
    out["timed_out"] = outcome.timed_out
    out["oom_killed"] = outcome.oom_killed
    out["started_ns"] = outcome.started_ns
    out["ended_ns"] = outcome.ended_ns
    out["duration_ms"] = round(outcome.duration_ms, 3)
    out["user_ms"] = outcome.user_ms
    out["system_ms"] = outcome.system_ms
    out["max_rss_kib"] = outcome.max_rss_kib
    put_all(out, "killed_at_end", outcome.killed_at_end)
    return out


def _footprint(footprint: Footprint) -> Json:
    out: Json = {}
    for name in PATH_SETS:
        put_all(out, name, sorted(getattr(footprint, name)))
    out["connected"] = [_peer(c.op, c.family, c.address, c.port, c.errno) for c in footprint.connected]
    put_map(out, "launch_env", footprint.launch_env)
    put(out, "launch_cwd", footprint.launch_cwd)
    put_all(out, "declared_reads", footprint.declared_reads)
    put_all(out, "declared_writes", footprint.declared_writes)
    out["principal"] = footprint.principal
    out["complete"] = footprint.complete
    put_all(out, "incomplete_because", footprint.incomplete_because)
    return out


def _peer(op: str, family: str, address: str, port: int, errno: int) -> Json:
    out: Json = {"op": op, "family": family}
    put(out, "address", address)
    out["port"] = port
    out["errno"] = errno
    return out


def reason_json(reason: Reason) -> Json:
    """Why a step of a plan is what it is."""
    out: Json = {"kind": reason.kind}
    put(out, "key", reason.key)
    out["from"] = reason.source
    put(out, "note", reason.note)
    return out


def _volatile(one: Volatile) -> Json:
    out: Json = {"action": one.action}
    put(out, "key", one.key)
    return {**out, "looks_like": list(one.looks), "same_input": one.same_input}


def hint_json(hint: Hint) -> Json:
    """A weak edge: a rare word of one action's output stands in what a later one was given."""
    out: Json = {"from": hint.source, "to": hint.target, "key": str(hint.key)}
    put(out, "token", hint.token)
    out["in"] = hint.place
    out["confidence"] = hint.confidence
    return out


def plan_json(plan: Plan) -> Json:
    """What `repair --dry-run --json` prints: the shape of a repair in which nothing was done."""
    return {
        "session": plan.session,
        "level": plan.policy.level,
        "granularity": plan.policy.granularity,
        "env_reads": plan.policy.env_reads,
        "sound": plan.policy.sound,
        "hints": [hint_json(hint) for hint in plan.hints],
        "plan": [{"action": s.action, "step": s.kind, "because": [reason_json(r) for r in s.because]} for s in plan.steps],
        "applied": False,
        "ran": [],
        "kept": [],
        "dropped": [],
        "cut_off": [],
        "stale": [],
        "volatile": [],
        "diverged": [],
        "failed": [],
        "failures": [],
        "effects": [],
        "head": str(plan.head),
    }


def report_json(report: Report) -> Json:
    """What `repair --json` prints. `failures`: what failed, as `run --json` tells it; in no history unless applied."""
    out = plan_json(report.plan)
    for name in ("ran", "kept", "dropped", "cut_off", "stale", "diverged", "failed"):
        out[name] = list(getattr(report, name))
    out["volatile"] = [_volatile(one) for one in report.volatile]
    out["failures"] = [run_json(record, report.plan.session) for record in report.failures]
    put_all(out, "effects", report.effects)
    out["in_vain"] = report.in_vain
    out["applied"] = report.applied
    out["head"] = str(report.head)
    out["seconds"] = round(report.seconds, 3)
    return out


def merge_json(report: MergeReport) -> Json:
    """What `merge --json` prints; `theirs` pairs the id that each action has in the branch with the one it has here."""
    conflicts: list[Json] = []
    for one in report.conflicts:
        row: Json = {"kind": one.kind, "ours": one.ours, "theirs": one.theirs, "note": one.note}
        put(row, "key", one.key)
        conflicts.append(row)
    return {
        "session": report.session,
        "branch": report.branch,
        "common": report.common or None,
        "ours": list(report.ours),
        "theirs": [{"action": old, "here": new} for old, new in report.theirs],
        "conflicts": conflicts,
        "ran": list(report.ran),
        "failed": list(report.failed),
        "applied": report.applied,
        "head": str(report.head),
    }


def print_json(value: object) -> None:
    """Print a value: indented for a person on a terminal, else on one line."""
    echo(json.dumps(value, indent=2 if sys.stdout.isatty() else None))
