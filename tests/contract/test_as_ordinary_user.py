"""The whole contract once more, as an ordinary user: it says the same with and without privilege."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.mark.timeout(900)
@pytest.mark.skipif(os.geteuid() != 0, reason="the contract runs as an ordinary user already")
@pytest.mark.skipif("MULLIGAN_RAN_AS_USER" in os.environ, reason="an ordinary user has run all tests just before")
def test_the_contract_holds_for_an_ordinary_user(passes_for_an_ordinary_user: Callable[[Path], None]) -> None:
    """All tests of this folder pass in a process of an ordinary user."""
    passes_for_an_ordinary_user(Path(__file__).parent)
