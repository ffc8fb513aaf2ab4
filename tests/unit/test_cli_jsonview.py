"""The JSON is a contract: exactly the names that the design gives, and exact bytes for what is not UTF-8."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import pytest

from mulligan.cli import jsonview
from mulligan.model.action import Action, LaunchContext, Outcome
from mulligan.model.change import Drop
from mulligan.model.events import Connect
from mulligan.model.footprint import Footprint
from mulligan.model.ids import ActionId, LayerId, RecordId
from mulligan.model.layer import Layer, Manifest
from mulligan.model.plan import Plan, Reason, Report, Step
from mulligan.model.record import Record

ODD = b"/workspace/\xff\xfe".decode("utf-8", "surrogateescape")


def record(**outcome) -> Record:
    """A record that saw and wrote something, with an outcome as given."""
    outcome = {"exit_code": 0, "signal": None, "stdout": b"out\n", "duration_ms": 2.5, **outcome}
    return Record(
        record_id=RecordId(1),
        revision=1,
        action=Action(id=ActionId("a1"), shell="make", labels=("build",)),
        launch=LaunchContext({"PATH": "/bin"}),
        handoff=LaunchContext({"PATH": "/bin"}),
        outcome=Outcome(**outcome),
        footprint=Footprint(
            saw=frozenset({"/workspace/a", ODD}),
            missed=frozenset({"/workspace/a"}),
            wrote=frozenset({"/workspace/b"}),
            removed=frozenset({"/workspace/c"}),
            connected=(Connect("connect", "inet", "127.0.0.1", 80, 111),),
            launch_env={"PATH": "/bin", "ODD": b"\xff".decode("utf-8", "surrogateescape")},
            incomplete_because=("io_uring",),
        ),
        layer=Layer(LayerId("l1"), Manifest()),
    )


def test_run_has_the_documented_names_in_order():
    """`run --json` has exactly the documented members, and counts paths once however often they were looked at."""
    out = jsonview.run_json(record(), "job")
    assert list(out) == [
        "action", "session", "exit_code", "signal", "timed_out", "oom_killed", "stdout", "stderr", "outputs", "truncated",
        "duration_ms", "reads", "writes", "complete", "incomplete_because",
    ]  # fmt: skip
    assert (out["action"], out["session"], out["exit_code"], out["signal"]) == ("a1", "job", 0, None)
    assert (out["reads"], out["writes"], out["duration_ms"]) == (2, 2, 2.5)
    assert out["complete"] is False
    assert out["incomplete_because"] == ["io_uring"]


def test_output_that_is_not_utf8_comes_as_bytes_too():
    """Stdout that is not UTF-8 is given readable and, exactly, in base64."""
    out = jsonview.run_json(record(stdout=b"\x00\xff"), "job")
    assert out["stdout"] == "\x00\ufffd"
    assert base64.b64decode(out["stdout_b64"]) == b"\x00\xff"
    assert "stderr_b64" not in out


def test_a_signal_is_a_name():
    """A command that a signal ended has no exit code but the signal's name."""
    out = jsonview.run_json(record(exit_code=None, signal="SIGKILL", timed_out=True), "job")
    assert (out["exit_code"], out["signal"], out["timed_out"]) == (None, "SIGKILL", True)


def test_show_has_the_documented_shape():
    """`show --json` has action, outcome, footprint and layer; the footprint at least the documented members."""
    out = jsonview.show_json(record())
    assert list(out) == ["action", "outcome", "outputs", "footprint", "umask", "layer"]
    assert out["layer"] == "l1"
    documented = {
        "saw", "missed", "listed", "executed", "linked", "wrote", "removed", "connected", "launch_env", "complete",
        "incomplete_because",
    }  # fmt: skip
    assert documented <= set(out["footprint"])
    assert out["footprint"]["connected"] == [
        {"op": "connect", "family": "inet", "address": "127.0.0.1", "port": 80, "errno": 111}
    ]


def test_paths_that_are_not_utf8_have_a_twin_of_the_same_order():
    """A list with such a path has a `_b64` twin, entry by entry; a mapping has the values that need it."""
    footprint = jsonview.show_json(record())["footprint"]
    assert footprint["saw"] == ["/workspace/a", "/workspace/\ufffd\ufffd"]
    assert [base64.b64decode(p) for p in footprint["saw_b64"]] == [b"/workspace/a", b"/workspace/\xff\xfe"]
    assert "missed_b64" not in footprint
    assert footprint["launch_env"]["PATH"] == "/bin"
    assert {k: base64.b64decode(v) for k, v in footprint["launch_env_b64"].items()} == {"ODD": b"\xff"}


SHAPES = {
    "run": lambda odd: jsonview.run_json(odd, "s"),
    "show": jsonview.show_json,
    "log": jsonview.log_json,
    "plan": lambda odd: jsonview.plan_json(
        Plan("s", 1, (Drop("a1"),), (Step(odd.id, "keep", (Reason("read_changed", f"dat:{ODD}"),)),))
    ),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_is_valid_utf8_json(shape):
    """No lone surrogate gets into the JSON, whatever a guest named its files and a user wrote; what was odd is said to be so."""
    odd = record(stdout=b"\xff", stderr=b"\xfe", killed_at_end=(ODD,))
    odd = replace(odd, action=replace(odd.action, shell=f"cat {ODD}", cwd=ODD, env={"ODD": ODD}, labels=(ODD,)))
    text = json.dumps(SHAPES[shape](odd), ensure_ascii=False)
    assert json.loads(text.encode("utf-8")) == SHAPES[shape](odd)
    assert "\ufffd" in text or "\\udc" in text or "\\xff" in text


def plan() -> Plan:
    """A plan that drops a1 and runs a2 again."""
    steps = (
        Step(ActionId("a1"), "drop", (Reason("changed"),)),
        Step(ActionId("a2"), "must_rerun", (Reason("read_changed", key="dat:/workspace/x", source="a1"),)),
    )
    return Plan("job", 7, (Drop("a1"),), steps)


def test_a_dry_run_has_the_shape_of_a_repair_in_which_nothing_was_done():
    """`repair --dry-run --json` has a repair's members; nothing ran and the head is the present one."""
    out = jsonview.plan_json(plan())
    assert {"plan", "applied", "ran", "kept", "dropped", "cut_off", "diverged", "effects", "head"} <= set(out)
    assert out["applied"] is False
    assert out["head"] == "7"
    assert out["plan"][1]["step"] == "must_rerun"
    reason = out["plan"][1]["because"][0]
    assert (reason["kind"], reason["key"], reason["from"]) == ("read_changed", "dat:/workspace/x", "a1")


def test_a_report_tells_what_ran():
    """`repair --json` names what ran, was dropped and diverged, and the new head."""
    report = Report(plan(), applied=True, ran=(ActionId("a2"),), dropped=(ActionId("a1"),), head=9)
    out = jsonview.report_json(report)
    assert (out["applied"], out["ran"], out["dropped"], out["kept"], out["head"]) == (True, ["a2"], ["a1"], [], "9")
