"""Counts: how many actions the repairs of the property tests ran, and how many they had to. Told at the end of the run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Counts:
    """Sums over all repairs of one test. `extra` counts what ran beyond the minimum, by the kind of key it was for."""

    repairs: int = 0
    actions: int = 0
    executed: int = 0
    minimal: int = 0
    kept: int = 0
    cut_off: int = 0
    in_vain: int = 0  # replays begun ahead of their turn and thrown away
    extra: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        line = (
            f"repairs {self.repairs:,}, actions {self.actions:,}, executed {self.executed:,}, minimal {self.minimal:,}, "
            f"kept {self.kept:,}, cut off {self.cut_off:,}"
        )
        line += f"; {self.in_vain:,} begun in vain" if self.in_vain else ""
        return line + "".join(f"; {count:,} beyond the minimum for {kind}" for kind, count in self.extra.most_common())


COUNTS: dict[str, Counts] = {}


def counts(name: str) -> Counts:
    """The sums of one test."""
    return COUNTS.setdefault(name, Counts())
