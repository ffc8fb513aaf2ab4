"""Probing the host: everything is really tried, and nothing of it is left."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mulligan.sandbox.hosts import HostFeatures

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_missing_has_a_remedy(tmp_path: Path, sandboxes: HostFeatures) -> None:
    """Each feature says what it is needed for; one that is missing says what to do; the store's own folder is tried."""
    assert sandboxes.runs
    found = HostFeatures.probe(tmp_path / "not" / "made" / "yet", os.environ)
    assert found.runs
    assert all(one.needed_for and one.detail for one in found.features)
    assert all(one.remedy for one in found.features if not one.ok)
    assert str(tmp_path) in found.of("overlayfs").detail
    assert os.listdir(tmp_path) == []


def test_an_action_runs_whatever_the_callers_path(sandboxes: HostFeatures) -> None:
    """The trial action does not depend on the PATH of who asks."""
    assert sandboxes.runs
    assert HostFeatures.probe(None, {"PATH": "/nowhere"}).of("sandbox").ok
