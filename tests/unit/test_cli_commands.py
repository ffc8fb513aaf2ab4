"""What commands ask of a session, against a fake one: options become arguments, records become bytes and statuses."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import sys
import types
from dataclasses import replace
from typing import ClassVar

import pytest

import mulligan
from mulligan import errors
from mulligan.cli import main as cli
from mulligan.cli.repair import outcome_word, say_all
from mulligan.model.action import Action, LaunchContext, Outcome
from mulligan.model.change import Drop, Patch, Replace, Rerun
from mulligan.model.footprint import Footprint
from mulligan.model.hint import Hint
from mulligan.model.ids import ActionId, LayerId, RecordId
from mulligan.model.layer import Layer, Manifest
from mulligan.model.plan import Plan, Reason, Report, Step, Volatile
from mulligan.model.record import Record


def a_record(outcome: Outcome, text: str = "true") -> Record:
    """A record of an action with this outcome."""
    action = Action(id=ActionId("a1"), shell=text)
    launch = LaunchContext()
    return Record(RecordId(1), 1, action, launch, launch, outcome, Footprint(), Layer(LayerId("l1"), Manifest()))


class FakeSession:
    """Stands for mulligan.session.Session: remembers what it was asked, answers what it was told to."""

    known: ClassVar[set[str]] = set()
    asked: ClassVar[list[tuple]] = []
    policies: ClassVar[list[mulligan.Policy]] = []
    outcome = Outcome(0, None)
    report_applied = True
    in_vain = 0
    imports: ClassVar[dict[str, str]] = {}

    def __init__(self, name):
        self.name = name
        self.head = 4

    @classmethod
    def create(cls, name, **options):
        """Make a session."""
        if name in cls.known:
            raise errors.AlreadyExistsError(f"session {name} exists")
        cls.known.add(name)
        cls.asked.append(("create", name, options))
        return cls(name)

    @classmethod
    def open(cls, name, *, home=None):  # noqa: ARG003 - the real one's signature
        """Open a session."""
        if name not in cls.known:
            raise errors.NotFoundError(f"no session {name}")
        return cls(name)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return None

    def run(self, command, **options):
        """Run an action."""
        self.asked.append(("run", command, options))
        for key, data in (("on_stdout", self.outcome.stdout), ("on_stderr", self.outcome.stderr)):
            if options[key]:
                options[key](data)
        return a_record(self.outcome)

    @property
    def oldest_repairable(self):
        """The first action."""
        records = self.log()
        return records[0].id if records else None

    def log(self):
        """All records."""
        return [a_record(self.outcome, "echo '\x1b[31m'\nnext")]

    def plan(self, *changes, policy):
        """A plan."""
        self.asked.append(("plan", changes))
        self.policies.append(policy)
        step = Step(ActionId("a1"), "must_rerun", (Reason("read_changed", "dat:/workspace/x\n", "a0"),))
        return Plan(self.name, 4, changes, (step,))

    def apply(self, plan, *, keep_going, progress, on_wait, extend):  # noqa: ARG002 - the real one's signature
        """A report."""
        assert extend, "actions that are added meanwhile are part of it"
        self.asked.append(("apply", keep_going))
        progress(ActionId("a1"), "rerun", 1, 1)
        failures = () if self.report_applied else (a_record(Outcome(4, None, stderr=b"one\n\x1b[31mtwo\n"), "other"),)
        failed = tuple(r.id for r in failures)
        return Report(
            plan,
            applied=self.report_applied,
            ran=(ActionId("a1"),),
            failed=failed,
            failures=failures,
            diverged=failed,
            head=5,
            in_vain=self.in_vain,
        )


@pytest.fixture
def fake(monkeypatch):
    """The fake session module in the real one's place; gives the class."""
    monkeypatch.setattr(FakeSession, "known", {"job"})
    monkeypatch.setattr(FakeSession, "asked", [])
    module = types.ModuleType("mulligan.session")
    module.Session = FakeSession
    monkeypatch.setitem(sys.modules, "mulligan.session", module)
    monkeypatch.setattr(mulligan, "session", module, raising=False)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"")))
    return FakeSession


def test_run_passes_output_bytes_and_status_on(fake, monkeypatch, capfdbinary):
    """The action's bytes come out exactly as they were and its exit status is the command's."""
    monkeypatch.setattr(fake, "outcome", Outcome(3, None, stdout=b"\x00\xff\x1b[1m", stderr=b"oops\r"))
    assert cli.main(["run", "-s", "job", "-c", "x"], {}) == 3
    assert tuple(capfdbinary.readouterr()) == (b"\x00\xff\x1b[1m", b"oops\r")


def test_a_signal_gives_the_status_a_shell_would_give(fake, monkeypatch):
    """A command killed by SIGKILL ends with 137."""
    monkeypatch.setattr(fake, "outcome", Outcome(None, "SIGKILL"))
    assert cli.main(["run", "-s", "job", "-c", "x"], {}) == 137


def test_run_hands_all_options_on(fake):
    """Every option of run reaches the session as its argument; options after `--` are the action's own."""
    args = ["run", "-s", "job", "--cwd", "/tmp", "--env", "A=1", "--timeout", "2.5", "--label", "x", "--reads", "out:a1"]
    assert cli.main([*args, "--writes", "net:db", "--", "ls", "-l", "--json"], {}) == 0
    name, command, options = fake.asked[-1]
    for callback in ("on_wait", "on_stdout", "on_stderr"):
        assert callable(options.pop(callback))
    assert (name, command) == ("run", ["ls", "-l", "--json"])
    assert options == {
        "cwd": "/tmp", "env": {"A": "1"}, "stdin": b"", "timeout": 2.5, "labels": ("x",), "reads": ("out:a1",),
        "writes": ("net:db",),
    }  # fmt: skip


def test_what_is_piped_in_becomes_stdin(fake, monkeypatch):
    """Stdin goes on to the action when it is no terminal, and not at all with -n."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\xffb")))
    cli.main(["run", "-n", "-s", "job", "-c", "cat"], {})
    assert fake.asked[-1][2]["stdin"] == b""
    cli.main(["run", "-s", "job", "-c", "cat"], {})
    assert fake.asked[-1][2]["stdin"] == b"a\xffb"


@pytest.mark.parametrize("args", [[], ["-c", "x", "ls"], ["--timeout", "0", "-c", "x"], ["--timeout", "nan", "-c", "x"]])
def test_run_refuses_what_makes_no_sense(fake, args):
    """Nothing to run, two things to run, or no time to run it are usage errors, and nothing runs."""
    assert cli.main(["run", "-s", "job", *args], {}) == errors.UsageError.exit_code
    assert fake.asked == []


def test_the_default_session_is_made_on_first_use(fake, tmp_path, monkeypatch):
    """Without -s and $MULLIGAN_SESSION, `run` makes "default" over the current folder, once."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["run", "-c", "x"], {}) == 0
    assert cli.main(["run", "-c", "y"], {}) == 0
    created = [a for a in fake.asked if a[0] == "create"]
    assert [(c[1], c[2]["imports"]) for c in created] == [("default", {str(tmp_path): "/workspace"})]


def test_the_default_session_says_what_it_holds(fake, tmp_path, monkeypatch, capsys):
    """It is told when it is made, and when it is used from a folder that it is no copy of; a named one is not."""
    inside, other = tmp_path / "p1" / "sub", tmp_path / "p2"
    inside.mkdir(parents=True)
    other.mkdir()
    monkeypatch.chdir(inside.parent)
    assert cli.main(["run", "-c", "x"], {}) == 0
    assert f"{tmp_path}/p1 was copied to /workspace" in capsys.readouterr().err
    monkeypatch.setattr(fake, "imports", {str(inside.parent): "/workspace"})
    for folder, args, told in ((inside, [], False), (other, [], True), (other, ["-s", "default"], False)):
        monkeypatch.chdir(folder)
        assert cli.main(["run", *args, "-c", "x"], {}) == 0
        assert ("not of this folder" in capsys.readouterr().err) is told


def test_the_default_session_never_swallows_a_home_folder(fake, tmp_path, monkeypatch):
    """In a home folder or at / nothing is imported unasked: it would copy keys and everything else."""
    for folder in (tmp_path, "/"):
        monkeypatch.chdir(folder)
        assert cli.main(["run", "-c", "x"], {"HOME": str(tmp_path)}) == errors.UsageError.exit_code
    assert fake.asked == []


def test_a_named_session_is_not_made_up(fake):
    """An unknown session named by -s or by the environment is an error, not a new session."""
    assert cli.main(["run", "-s", "nope", "-c", "x"], {}) == errors.NotFoundError.exit_code
    assert cli.main(["run", "-c", "x"], {"MULLIGAN_SESSION": "nope"}) == errors.NotFoundError.exit_code
    assert cli.main(["log"], {}) == errors.NotFoundError.exit_code


def test_new_hands_base_imports_and_environment_on(fake, capsys):
    """`new` maps its options to Session.create, and refuses one folder given twice."""
    args = ["new", "n", "--import", "p", "--import", "q:/data", "--env", "K=V", "--base", "/root-fs", "--json"]
    assert cli.main(args, {}) == 0
    _, name, options = fake.asked[-1]
    assert (name, options["base"], options["env"]) == ("n", "/root-fs", {"K": "V"})
    assert options["imports"] == {"p": "/workspace", "q": "/data"}
    assert json.loads(capsys.readouterr().out)["session"] == "n"
    assert cli.main(["new", "m", "--import", "p", "--import", "p:/x"], {}) == errors.UsageError.exit_code
    assert cli.main(["new", "job"], {}) == errors.AlreadyExistsError.exit_code


def test_log_escapes_commands(fake, capsys):
    """A command with a newline and a colour code is one harmless line of the log."""
    assert cli.main(["log", "-s", "job"], {}) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert r"echo '\x1b[31m'\nnext" in lines[1]


def test_repair_takes_changes_in_any_mix(fake, tmp_path, capsys):
    """Several changes of several kinds make one plan."""
    (tmp_path / "fixed").write_bytes(b"\x00v")
    args = ["repair", "-s", "job", "--drop", "a2", "--replace", "a1", "echo b", "--rerun", "a3", "--replace", "a5", "x"]
    assert cli.main([*args, "--patch", f"/workspace/c={tmp_path / 'fixed'}", "--dry-run", "--json"], {}) == 0
    changes = set(fake.asked[0][1])
    assert changes == {
        Drop("a2"), Replace("a1", "echo b"), Replace("a5", "x"), Rerun("a3"), Patch("/workspace/c", b"\x00v")
    }  # fmt: skip
    assert json.loads(capsys.readouterr().out)["applied"] is False
    assert [a[0] for a in fake.asked] == ["plan"]
    patch = f"/workspace/c={tmp_path / 'fixed'}"
    assert cli.main(["repair", "-s", "job", "--patch", patch, "--at", "a2", "--dry-run"], {}) == 0
    assert fake.asked[-1][1] == (Patch("/workspace/c", b"\x00v", "a2"),)
    assert cli.main(["repair", "-s", "job", "--drop", "a1", "--at", "a2"], {}) == errors.UsageError.exit_code


def test_repair_tells_what_was_begun_in_vain(fake, monkeypatch, capsys):
    """`--jobs` is handed on; the last line counts what was begun before its turn for nothing, when there is any."""
    assert cli.main(["repair", "-s", "job", "--drop", "a1", "--jobs", "3"], {}) == 0
    assert "in vain" not in capsys.readouterr().out
    assert fake.policies[-1].jobs == 3
    monkeypatch.setattr(fake, "in_vain", 2)
    assert cli.main(["repair", "-s", "job", "--drop", "a1"], {}) == 0
    assert "0 dropped, 2 begun in vain, " in capsys.readouterr().out
    assert fake.policies[-1].jobs == 0


def test_repair_shows_reasons_escaped(fake, capsys):
    """Each action is shown with its witness; a hostile path in it stays on its line."""
    assert cli.main(["repair", "-s", "job", "--drop", "a1"], {}) == 0
    out = capsys.readouterr().out
    assert r"dat:/workspace/x\n (by a0)" in out
    assert "repair applied: 1 ran" in out


def test_a_repair_that_was_not_applied_fails(fake, monkeypatch, capsys):
    """A replay that failed gives RepairFailedError's status, and still says what happened."""
    monkeypatch.setattr(fake, "report_applied", False)
    assert cli.main(["repair", "-s", "job", "--drop", "a1"], {}) == errors.RepairFailedError.exit_code
    out, err = capsys.readouterr()
    assert "repair not applied" in out
    assert "--keep-going" in err
    assert "a1 (exit 4) failed" in err
    assert "ran: ok -> exit 4" in out
    assert "  one\n  \\x1b[31mtwo\n" in out  # what failed is in no history: this is where its words are seen


def test_a_repair_that_was_not_applied_prints_one_json_value(fake, monkeypatch, capsys):
    """With --json stdout is one JSON value, whatever happened."""
    monkeypatch.setattr(fake, "report_applied", False)
    assert cli.main(["repair", "-s", "job", "--drop", "a1", "--json"], {}) == errors.RepairFailedError.exit_code
    out = json.loads(capsys.readouterr().out)
    assert out["failed"] == ["a1"]
    assert (out["failures"][0]["exit_code"], out["failures"][0]["stderr"]) == (4, "one\n\x1b[31mtwo\n")


def test_a_plan_shows_the_replacement(fake, capsys):
    """A dry run names what a replaced action is to be, not what it was."""
    assert cli.main(["repair", "-s", "job", "--replace", "a1", "the new text", "--dry-run"], {}) == 0
    assert "the new text" in capsys.readouterr().out


@pytest.mark.parametrize("answer", [False, True])
def test_a_person_is_shown_the_plan_and_asked(fake, monkeypatch, capsys, answer):
    """On a terminal the plan comes first, and only a yes applies it; --yes and --json ask nothing, nor does a pipe."""
    asked = []
    monkeypatch.setattr("click.confirm", lambda text, default: (asked.append((text, default)), answer)[1])
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert cli.main(["repair", "-s", "job", "--drop", "a1"], {}) == 0
    out = capsys.readouterr().out
    assert "plan: 1 must run again" in out
    assert asked == [("apply?", False)]
    assert ("apply", False) in fake.asked or not answer
    assert ("nothing was changed" in out) is not answer
    assert cli.main(["repair", "-s", "job", "--drop", "a1", "--yes"], {}) == 0
    assert cli.main(["repair", "-s", "job", "--drop", "a1", "--json"], {}) == 0
    assert len(asked) == 1


def test_how_cautious_a_repair_is_can_be_said(fake, monkeypatch, capsys):
    """--level and --granularity make the policy; the JSON names both, and level 0 is called unsound aloud."""
    args = ["repair", "-s", "job", "--drop", "a1", "--dry-run"]
    assert cli.main([*args, "--level", "3", "--granularity", "group", "--json"], {}) == 0
    assert fake.policies[-1] == mulligan.Policy(3, "group")
    told = json.loads(capsys.readouterr().out)
    assert {"level", "granularity", "sound"} <= set(told)
    assert cli.main([*args, "--env-reads", "launch", "--json"], {}) == 0
    assert fake.policies[-1].env_reads == "launch"
    assert cli.main([*args, "--level", "5"], {}) == errors.UsageError.exit_code
    plan = Plan("job", 1, (), (Step(ActionId("a1"), "keep", (Reason("read_changed", "dat:/x", "a0"),)),))
    monkeypatch.setattr(fake, "plan", lambda _self, *_changes, policy: replace(plan, policy=policy))
    assert cli.main([*args, "--level", "0"], {}) == 0
    out = capsys.readouterr().out
    assert "keep (stale)" in out
    assert "level 0 is UNSOUND: kept over a difference: a1" in out


def test_hints_and_volatile_results_are_told_escaped(fake, monkeypatch, capsys):
    """Each on a line, with what one may do about it, and in the JSON."""
    hint = Hint(ActionId("a1"), ActionId("a2"), "stdout", "ab\x1bcd", "command", 0.61)
    volatile = (
        Volatile(ActionId("a1"), "dat:/w/\x1bx", ("uuid",)),
        Volatile(ActionId("a1"), "out:a1.stdout", ("time",), same_input=False),
    )
    more = [Volatile(ActionId("a1"), key, ("uuid",)) for key in ("dat:/w/[x]';date;'", "dat:/w/a=b", "dat:/w/plain")]
    volatile = (*volatile, *more)
    plan = Plan("job", 4, (), (Step(ActionId("a1"), "must_rerun"),), hints=(hint,) * 7)
    monkeypatch.setattr(fake, "plan", lambda _self, *_changes, policy: replace(plan, policy=policy))
    monkeypatch.setattr(fake, "apply", lambda _self, plan, **_: Report(plan, applied=True, volatile=volatile))
    assert cli.main(["repair", "-s", "job", "--drop", "a1"], {}) == 0
    out = capsys.readouterr().out
    assert "hint: a2 may hang on a1's output: its command holds 'ab\\\\x1bcd' (confidence 0.61); --level 3 would" in out
    assert "2 more hints" in out
    assert (
        r"volatile: dat:/w/\x1bx of a1 came out differently although nothing it saw had changed; what differs looks like uuid"
        in out
    )
    advised = [shlex.split(line.rpartition("--equivalent ")[2]) for line in out.splitlines() if "--equivalent" in line]
    assert advised == [["/w/[[]x]';date;'=@uuid"], ["/w/plain=@uuid"]]  # one word each, wherever they are pasted
    assert "volatile: out:a1.stdout of a1 differs only in what looks like time\n" in out
    assert cli.main(["repair", "-s", "job", "--drop", "a1", "--json"], {}) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["hints"][0]["token"], told["volatile"][1]["same_input"]) == ("ab\x1bcd", False)


def test_reasons_of_one_kind_are_told_together():
    """The saying stands once, before all its witnesses."""
    reasons = [Reason("launch", "env:A", "a1"), Reason("read_changed", "dat:/x", "a2"), Reason("launch", "env:B", "a1")]
    told = "is launched with another env:A (by a1), env:B (by a1); saw another value of dat:/x (by a2)"
    assert say_all(reasons) == told
    assert say_all([*reasons, Reason("incomplete")]).endswith("(+1 more)")


@pytest.mark.parametrize(("was", "now", "word"), [(0, 0, "ran"), (1, 1, "ran: exit 1 again"), (1, 0, "ran: exit 1 -> ok")])
def test_a_replay_that_fails_as_before_is_told(was, now, word):
    """A repair is not taken for a cure while an action goes on failing."""
    step = Step(ActionId("a1"), "must_rerun")
    diverged = (step.action,) if was != now else ()
    report = Report(Plan("job", 1, (), (step,)), applied=True, ran=(step.action,), diverged=diverged)
    assert outcome_word(report, step, [a_record(Outcome(was, None))], [a_record(Outcome(now, None))]) == word


def test_log_shows_labels_where_there_are_any(fake, monkeypatch, capsys):
    """A column of labels appears with the first label."""
    assert cli.main(["log", "-s", "job"], {}) == 0
    assert "LABELS" not in capsys.readouterr().out
    record = a_record(Outcome(0, None))
    labelled = replace(record, action=replace(record.action, labels=("nightly", "x\n")))
    monkeypatch.setattr(fake, "log", lambda _self: [labelled])
    assert cli.main(["log", "-s", "job"], {}) == 0
    assert r"nightly x\n" in capsys.readouterr().out


def test_show_tells_the_work_before_the_system(fake, monkeypatch, capsys):
    """Among more paths than are shown, those of the work come first; so does what was handed on."""
    record = a_record(Outcome(0, None))
    saw = frozenset({f"/usr/lib/{n:03}" for n in range(30)} | {"/workspace/in.csv", "/data/x"})
    shown = replace(record, footprint=replace(record.footprint, saw=saw), handoff=LaunchContext({"A": "1"}, "/w"))
    monkeypatch.setattr(fake, "record", lambda _self, _action: shown, raising=False)
    assert cli.main(["show", "-s", "job", "a1"], {}) == 0
    lines = capsys.readouterr().out.splitlines()
    start = lines.index("saw (32)")
    assert lines[start + 1 : start + 3] == ["  /data/x", "  /workspace/in.csv"]
    assert lines[-3:] == ["handed on (2)", "  A=1", "  PWD=/w"]


def test_the_default_session_is_named_when_it_is_missing(fake, capsys):
    """A command without -s says which session it looked for, and how to name another."""
    assert cli.main(["log"], {}) == errors.NotFoundError.exit_code
    err = capsys.readouterr().err
    assert "no session default" in err
    assert "-s" in err


@pytest.mark.parametrize("patch", ["no-equals", "=file", "/x=", "/x=/no/such/file", "/x=/"])
def test_a_bad_patch_is_refused(fake, patch):
    """A patch without path, without file, or with a file that can't be read asks nothing of the session."""
    assert cli.main(["repair", "-s", "job", "--patch", patch], {}) in {100, 101}
    assert fake.asked == []


def test_nobody_reading_is_no_error(fake, monkeypatch):
    """When the reader of a pipe has left, the command ends quietly with a shell's status for it."""

    class Gone(io.TextIOWrapper):
        def write(self, _text):
            raise BrokenPipeError

    with contextlib.redirect_stdout(Gone(io.BytesIO())):
        monkeypatch.setattr(cli.os, "dup2", lambda *_: None)
        assert cli.main(["log", "-s", "job"], {}) == 141
