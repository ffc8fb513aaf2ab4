"""Puts the model machine, the generated histories and the twins within reach of the property tests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Tell how many actions the repairs ran, and how many were needed."""
    from counts import COUNTS  # found by the path above

    for name, sums in COUNTS.items():
        terminalreporter.write_line(f"{name}: {sums}")
