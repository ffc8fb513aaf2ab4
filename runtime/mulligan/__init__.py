"""Mulligan: run actions in sandboxes, see what each relied on, and repair a history in which one went wrong.

The front door. Names are loaded on first use (PEP 562), so that `import mulligan` costs next to nothing:
sessions from session.py, changes from model/change.py, what comes back from model/, the failures from errors.py.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mulligan.asked import ActionFailedError as ActionFailedError
    from mulligan.errors import AlreadyExistsError as AlreadyExistsError
    from mulligan.errors import ConflictError as ConflictError
    from mulligan.errors import GivenUpError as GivenUpError
    from mulligan.errors import HostError as HostError
    from mulligan.errors import InternalError as InternalError
    from mulligan.errors import MulliganError as MulliganError
    from mulligan.errors import NotFoundError as NotFoundError
    from mulligan.errors import RepairFailedError as RepairFailedError
    from mulligan.errors import StoreError as StoreError
    from mulligan.errors import UsageError as UsageError
    from mulligan.merge import MergeConflictError as MergeConflictError
    from mulligan.merge import MergeReport as MergeReport
    from mulligan.model.change import Drop as Drop
    from mulligan.model.change import Patch as Patch
    from mulligan.model.change import Replace as Replace
    from mulligan.model.change import Rerun as Rerun
    from mulligan.model.footprint import Footprint as Footprint
    from mulligan.model.plan import Plan as Plan
    from mulligan.model.plan import Report as Report
    from mulligan.model.policy import Equivalence as Equivalence
    from mulligan.model.policy import Policy as Policy
    from mulligan.model.record import Record as Record
    from mulligan.repair.refiners import register_refiner as register_refiner
    from mulligan.session import Session as Session

__version__: Final = "0.1.0"

_HOME_OF: Final = {
    "Session": "mulligan.session",
    "ActionFailedError": "mulligan.asked",
    "MergeConflictError": "mulligan.merge",
    "MergeReport": "mulligan.merge",
    "Replace": "mulligan.model.change",
    "Drop": "mulligan.model.change",
    "Rerun": "mulligan.model.change",
    "Patch": "mulligan.model.change",
    "Record": "mulligan.model.record",
    "Footprint": "mulligan.model.footprint",
    "Plan": "mulligan.model.plan",
    "Report": "mulligan.model.plan",
    "Policy": "mulligan.model.policy",
    "Equivalence": "mulligan.model.policy",
    "register_refiner": "mulligan.repair.refiners",
    "MulliganError": "mulligan.errors",
    "UsageError": "mulligan.errors",
    "NotFoundError": "mulligan.errors",
    "AlreadyExistsError": "mulligan.errors",
    "ConflictError": "mulligan.errors",
    "RepairFailedError": "mulligan.errors",
    "GivenUpError": "mulligan.errors",
    "HostError": "mulligan.errors",
    "StoreError": "mulligan.errors",
    "InternalError": "mulligan.errors",
}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605 - a list of str, computed from the table


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'mulligan' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
