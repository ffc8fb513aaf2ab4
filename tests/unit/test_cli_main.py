"""Every failure is one sentence and a documented status; help costs no heavy import."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from mulligan import errors
from mulligan.cli import main as cli
from mulligan.cli.options import Caller, folder_pair, pairs


def all_errors(base=errors.MulliganError):
    """The classes of failure, from the base down."""
    return [base, *(c for sub in base.__subclasses__() if sub.__module__ == "mulligan.errors" for c in all_errors(sub))]


@pytest.fixture
def failing(monkeypatch):
    """Make the command `ps` fail with a given exception; gives the runner."""

    def run(error: BaseException, *args: str) -> int:
        def fail(*_args, **_kwargs):
            raise error

        monkeypatch.setattr(cli.mulligan, "invoke", fail)
        return cli.main(args or ("ps",), {})

    return run


@pytest.mark.parametrize("kind", all_errors(), ids=lambda k: k.__name__)
def test_each_failure_has_its_own_status_and_one_sentence(kind, failing, capsys):
    """A MulliganError ends with its class's exit status and one line on stderr; stdout is only for results."""
    assert failing(kind("the thing failed", remedy="do this")) == kind.exit_code
    out, err = capsys.readouterr()
    assert (out, err) == ("", "mulligan: the thing failed; do this\n")


def test_exit_statuses_are_told_apart_from_each_other_and_from_shells():
    """Statuses are distinct, at least 100 and below 126."""
    codes = [e.exit_code for e in all_errors()]
    assert len(set(codes)) == len(codes)
    assert all(100 <= c < 126 for c in codes)


def test_interruption_has_its_status(failing, capsys):
    """Ctrl-C is no traceback but InterruptedRunError's status."""
    assert failing(KeyboardInterrupt()) == errors.InterruptedRunError.exit_code
    assert capsys.readouterr().err.strip().startswith("mulligan: interrupted")


def test_the_unforeseen_is_an_internal_error_with_a_hint(failing, capsys):
    """A bug is one sentence, too, that says how to see more."""
    assert failing(RuntimeError("odd\nthing")) == errors.InternalError.exit_code
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "RuntimeError: odd thing" in err
    assert "MULLIGAN_DEBUG" in err


def test_a_full_disk_is_the_hosts_fault(failing, capsys):
    """ENOSPC from anywhere is DiskFullError, not a bug."""
    assert failing(OSError(28, "No space left on device")) == errors.DiskFullError.exit_code
    assert "no space left" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("failure", "kind"),
    [(PermissionError(13, "no"), errors.HostError), (FileNotFoundError(2, "no"), errors.StoreError)],
)
def test_a_store_that_was_meddled_with_is_no_bug(failure, kind, monkeypatch, tmp_path):
    """A part of the store that is closed or gone is told as that; the same of any other file is unforeseen."""

    def fail(*_args, **_kwargs):
        raise failure

    monkeypatch.setattr(cli.mulligan, "invoke", fail)
    for folder, status in ((tmp_path, kind.exit_code), (tmp_path / "other", errors.InternalError.exit_code)):
        failure.filename = str(tmp_path / "layers")
        assert cli.main(["ps"], {"MULLIGAN_HOME": str(folder)}) == status


def test_a_current_folder_that_is_gone_is_told(failing, monkeypatch, tmp_path, capsys):
    """The folder that a command was given in may have been removed meanwhile."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert failing(FileNotFoundError(2, "No such file or directory")) == errors.UsageError.exit_code
    assert "the current folder is gone" in capsys.readouterr().err


def test_a_failures_guest_bytes_are_escaped(failing, capsys):
    """A message that quotes a hostile name does not reach the terminal raw."""
    failing(errors.NotFoundError("no file \x1b[31mx\ny"))
    assert capsys.readouterr().err == "mulligan: no file \\x1b[31mx\\ny\n"


def test_bad_options_are_usage_errors_not_pythons_2(capsys):
    """What click refuses has UsageError's status, since 2 could be an action's own."""
    for args in (["nonsense"], ["run", "--nonsense"], ["show"], ["graph", "--format", "png"], ["new"]):
        assert cli.main(args, {}) == errors.UsageError.exit_code
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1, err
        assert err.startswith("mulligan: ")


@pytest.mark.parametrize(("args", "command"), [(["repair", "--replace", "a1"], "repair"), (["run", "-c"], "run")])
def test_an_option_that_lacks_its_value_names_the_help_of_its_command(args, command, capsys):
    """The help that is named is the one that describes the option."""
    assert cli.main(args, {}) == errors.UsageError.exit_code
    assert f"see `mulligan {command} --help`" in capsys.readouterr().err


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("args", [["--version"], ["ps"], ["ps", "--json"]])
def test_a_full_disk_behind_stdout_is_told_as_that(args, unbuffered, tmp_path):
    """It is not taken for the store's disk, and nothing complains a second time at exit."""
    env = {**os.environ, "MULLIGAN_HOME": str(tmp_path / "home"), "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "wb") as full:
        command = [sys.executable, "-m", "mulligan", *args]
        done = subprocess.run(command, env=env, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == errors.DiskFullError.exit_code
    assert done.stderr == "mulligan: write to stdout: No space left on device; send the output elsewhere\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_no_error(closed, tmp_path):
    """What the caller closed is as if it led nowhere."""
    env = {**os.environ, "MULLIGAN_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        f"exec '{sys.executable}' -m mulligan ps {closed}", shell=True, env=env, check=False, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_with_json_a_failure_is_an_object_on_stdout(tmp_path, capsys):
    """With --json a caller can tell Mulligan's failure from an action's status: it is an `error` object."""
    status = cli.main(["repair", "--json"], {"MULLIGAN_HOME": str(tmp_path)})
    out, err = capsys.readouterr()
    told = json.loads(out)["error"]
    assert status == told["exit_code"] == errors.UsageError.exit_code
    assert told["kind"] == "UsageError"
    assert err.startswith("mulligan: say what to correct")


def test_without_a_command_the_help_is_printed(capsys):
    """`mulligan` alone tells what there is."""
    assert cli.main([], {}) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in cli.COMMANDS)


@pytest.mark.parametrize("name", list(cli.COMMANDS))
def test_every_command_has_help_an_example_and_json(name, capsys):
    """Help of a command says what it does, shows an example and offers --json."""
    assert cli.main([name, "--help"], {}) == 0
    out = capsys.readouterr().out
    assert "Example" in out
    assert f"mulligan {name}" in out.partition("Example")[2]
    assert "--json" in out


def test_help_does_not_pay_for_what_it_does_not_use():
    """The help of `run` imports no graph, no tables, no database and no sandbox."""
    code = (
        "import sys; from mulligan.cli.main import main; main(['run', '--help'], {}); main(['--help'], {});"
        "heavy = {'rich', 'networkx', 'sqlite3', 'mulligan.session', 'asyncio'} & set(sys.modules); sys.exit(repr(heavy) if heavy else 0)"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_pairs_are_name_and_value():
    """--env takes NAME=VALUE, an empty value too, and refuses the rest."""
    assert pairs(("A=b=c", "E="), "--env") == {"A": "b=c", "E": ""}
    for bad in ("A", "=x"):
        with pytest.raises(errors.UsageError):
            pairs((bad,), "--env")


def test_import_names_a_host_folder_and_perhaps_a_place(tmp_path):
    """--import DIR goes to /workspace, DIR:/PLACE there; a folder whose own name has ':/' in it is meant as it is."""
    assert folder_pair("proj") == ("proj", "/workspace")
    assert folder_pair("proj:/data/in") == ("proj", "/data/in")
    odd = tmp_path / "a:" / "b"
    odd.mkdir(parents=True)
    assert folder_pair(str(odd)) == (str(odd), "/workspace")


def test_the_caller_is_what_the_environment_says(tmp_path):
    """$MULLIGAN_HOME and $MULLIGAN_SESSION choose store and session; empty ones count as unset."""
    caller = Caller.of({"MULLIGAN_HOME": str(tmp_path), "MULLIGAN_SESSION": "job", "HOME": "/home/u"})
    assert (caller.home, caller.session) == (tmp_path, "job")
    empty = Caller.of({"MULLIGAN_HOME": "", "MULLIGAN_SESSION": ""})
    assert (empty.home, empty.session) == (None, None)
