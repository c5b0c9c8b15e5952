"""`condition`: the condition that a definition describes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.conditions.comparing import Comparisons
from pipelines.conditions.contract import Condition
from pipelines.definitions.functions import well_formed
from pipelines.errors import DefinitionError


def condition(described: str | Mapping[str, Any]) -> Condition:
    """The condition that is described: a mapping (`Comparisons`).

    Raises `DefinitionError` if it describes none.
    """
    if isinstance(described, str):
        if well_formed(described):
            raise DefinitionError(
                f'"{described}" names a function, and a condition calls none: have a FUNCTION step add a value, and '
                "write {flag: true} for a value of the name flag"
            )
        raise DefinitionError(f'"{described}" is no condition; write a mapping like {{label: cat}}')
    return Comparisons(described)
