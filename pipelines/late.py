"""`late`: a function of a layer above, imported when it is called.

`Data.to_json` calls the writer of JSON, which is built on `Data`; a step's `open` calls executors, which are built on
steps. An import at the top of the file would be a circle. Such calls name their target by string, with `late`, so that
no module imports from a layer above its own.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Any

_target = cache(pkgutil.resolve_name)


def late(target: str) -> Callable[..., Any]:
    """A function that calls `target` with its own arguments; the target's module is imported at the first call.

    In the body of a class it is a method: the target gets the object first. The annotation of the name that it is
    assigned to says its type: `_encode: Callable[[Data], bytes] = late("pipelines.wire.protobuf:encode")`.

    Args:
        target: `module:name` or `module:Class.method`.
    """

    def call(*arguments: Any, **named: Any) -> Any:
        return _target(target)(*arguments, **named)

    return call
