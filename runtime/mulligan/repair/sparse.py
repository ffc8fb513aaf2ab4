"""Sparse planning: the plan of a long history, made from the index without reading the records that the changes can't reach.

Knows the forecast of planner.py and what it must be shown of a history (visits.py) and of its states (origins.py); pure. What
comes out is the plan that walking over every record gives, step for step and reason for reason, but for the hints: they go by
the words of every record, and are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mulligan.model.plan import Plan, Step
from mulligan.model.policy import DEFAULT_POLICY
from mulligan.model.postings import WRITTEN
from mulligan.repair.origins import Origins
from mulligan.repair.planner import Forecast, with_patched, with_patches
from mulligan.repair.schedule import place_changes
from mulligan.repair.visits import TooFarError, Visits
from mulligan.repair.walk import Pass

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from mulligan.model.action import LaunchContext
    from mulligan.model.change import Change
    from mulligan.model.layer import Layer
    from mulligan.model.policy import Policy
    from mulligan.repair.contents import Content, SamePart
    from mulligan.repair.dirty import SameBytes
    from mulligan.repair.index import ChainIndex, History
    from mulligan.repair.schedule import Slot
    from mulligan.repair.walk import ReadsVariable


def build_sparse_plan(
    history: History,
    index: ChainIndex,
    bottom: Iterable[Layer],
    changes: Sequence[Change],
    *,
    same_bytes: SameBytes,
    first_launch: LaunchContext,
    base_changed: Collection[str] = (),
    reads_variable: ReadsVariable | None = None,
    session: str = "",
    head: int = 0,
    policy: Policy = DEFAULT_POLICY,
    content: Content | None = None,
    same_part: SamePart | None = None,
) -> Plan | None:
    """The plan that `build_plan` gives, hints left out, without reading the records that these changes can't reach.

    None when they reach so many that nothing is gained. See visits.py.
    """
    assert may_be_sparse(policy), policy
    names = index.names()
    named, patches = place_changes(history, names, changes, lambda path: index.before(path, WRITTEN, len(index)))
    slots: list[Slot] = []
    walk = Pass(
        (history[0],) if names else (),
        bottom,
        (),
        same_bytes=with_patches(same_bytes),
        first_launch=first_launch,
        base_changed=base_changed,
        reads_variable=reads_variable,
        policy=policy,
        content=with_patched(content, changes),
        same_part=same_part,
        slots=slots,
    )
    forecast = Forecast(walk, {}, {}, Origins(history, index, walk.tree.copy()))
    steps = [Step(name, "keep") for name in names]
    try:
        for place, slot in Visits(history, index, walk, forecast, named=named, patches=patches, base_changed=base_changed):
            slots.append(slot)
            forecast.place = place
            if (step := forecast.step(slot)) is not None:
                steps[place] = step
    except TooFarError:
        return None
    return Plan(session, head, tuple(changes), tuple(steps), policy)


def may_be_sparse(policy: Policy) -> bool:
    """Whether a plan by this policy can do with the records that the changes reach.

    Level 0 keeps over differences, as equivalences do, level 3 goes by every record's words, level 4 runs all again, and a
    group reaches back to its first member.
    """
    return policy.level in (1, 2) and policy.granularity == "action" and not policy.equivalences
