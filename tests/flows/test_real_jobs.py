"""Two real jobs of 25 and 40 actions, corrected again and again: the result is a full run's, byte for byte, and no action too many ran."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from jobs import Fix
from jobs.course import Course
from jobs.package import PACKAGE, package_files
from jobs.pipeline import PIPELINE
from twins import said, tree_of

from mulligan import Policy


@pytest.mark.parametrize("job", [PACKAGE, PIPELINE], ids=lambda job: job.name)
@pytest.mark.timeout(600)
def test_a_real_job(job, tmp_path: Path, sandboxes: object, lacking_here: Callable[[str], None]) -> None:
    """After each of several repairs in a row, all outputs, hand-offs and files are those of the corrected history run whole.

    What ran again and what was cut off is exactly what the job's author wrote down.
    """
    assert sandboxes
    missing = [program for program in job.programs if not shutil.which(program)]
    if missing:
        lacking_here(f"not installed here: {', '.join(missing)}")
    course = Course.begin(job, tmp_path / "job")
    try:
        course.record(job)
        for fix in job.fixes:
            plan = course.plan(fix)
            before = [slot.id for slot in course.slots]
            if fix is job.fixes[0]:
                one_by_one = repaired_one_by_one(course, fix)
            report = course.apply(fix, plan)
            if fix is job.fixes[0]:
                assert tree_of(course.session) == one_by_one, "as many at once as there are CPUs give the same"
            if fix.compared:
                compare(course)
            ran = [name for name in report.ran if name in before]
            assert (fix.name, [int(name[1:]) for name in ran]) == (fix.name, list(fix.ran))
            assert (fix.name, [int(name[1:]) for name in report.cut_off]) == (fix.name, list(fix.cut_off))
            assert set(before) == {*ran, *report.kept, *report.dropped}
    finally:
        course.close()


def repaired_one_by_one(course: Course, fix: Fix) -> dict[str, tuple[object, ...]]:
    """The tree after the same repair on a branch, one replay at a time."""
    other = course.copy()
    try:
        other.apply(fix, other.plan(fix, Policy(jobs=1)))
        return tree_of(other.session)
    finally:
        other.close()


def compare(course: Course) -> None:
    """Run the corrected history whole on a twin, and compare all that it said and left."""
    with course.twin() as twin:
        expected = course.run_whole(twin)
        found = course.session.log()
        told = [n for n, slot in enumerate(course.slots) if not slot.patch]
        assert [said(found[n]) for n in told] == [said(expected[n]) for n in told]
        assert tree_of(course.session) == tree_of(twin)


def test_the_package_is_of_a_real_size() -> None:
    """The C package has its thirty files and more, twenty-five actions, and the pipeline forty."""
    sources = [name for name in package_files() if name.endswith((".c", ".h"))]
    assert len(sources) >= 50
    assert (len(PACKAGE.actions), len(PIPELINE.actions)) == (25, 40)
    assert PIPELINE.fixes[0].replaced.keys() == {6}
