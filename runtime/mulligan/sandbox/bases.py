"""Making a base by its name on the command line: `host`, or a folder. The one place that knows all kinds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mulligan.errors import NotFoundError
from mulligan.model.ids import shown
from mulligan.sandbox.folderbase import build_folder_base
from mulligan.sandbox.hostbase import build_host_base

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mulligan.model.layer import Layer
    from mulligan.sandbox.base import Base
    from mulligan.sandbox.layer import LayerStore


def build_base(name: str, store: LayerStore, environ: Mapping[str, str]) -> tuple[Base, list[Layer]]:
    """The base called `name` and its layers, bottom first. `environ` is the environment of the user who asks.

    Raises NotFoundError for what is neither `host` nor a folder.
    """
    if name == "host":
        base, skeleton = build_host_base(store, environ)
    elif os.path.isdir(name):
        base, skeleton = build_folder_base(store, name, environ)
    else:
        raise NotFoundError(
            f"there is no base {shown(name)!r}", remedy="say `host`, or the path of a folder with a root file system"
        )
    return base, [skeleton]
