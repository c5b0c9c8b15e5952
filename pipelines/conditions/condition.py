"""`condition`: the condition that a definition describes, for `when` and `where`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np
from pydantic import Field

from pipelines.conditions.comparing import Comparisons
from pipelines.conditions.contract import Condition, Failures
from pipelines.conditions.expressed import Expressed
from pipelines.data.batch import Batch
from pipelines.data.columns import Mask
from pipelines.definitions.functions import well_formed
from pipelines.errors import DefinitionError
from pipelines.expressions.engine import POLARS
from pipelines.plugins.requirements import NOTHING, Requirement

Described: TypeAlias = str | dict[str, Any]
"""One condition: an expression or a mapping."""
Conditions: TypeAlias = Described | Annotated[tuple[Described, ...], Field(min_length=1)]
"""One condition, or several that must all hold."""


def condition(described: Described | Sequence[Described]) -> Condition:
    """The condition that is described: an SQL expression (`Expressed`), a mapping (`Comparisons`), or a list of these.

    Of a list all must hold; a row that an earlier one does not choose is no error of a later one. Raises
    `DefinitionError` if it describes none, and `MissingPackageError` for an expression without Polars.
    """
    if isinstance(described, Mapping):
        return Comparisons(described)
    if not isinstance(described, str):
        return AllHold([condition(each) for each in described])
    if well_formed(described):
        raise DefinitionError(
            f'"{described}" names a function, and a condition calls none: have a FUNCTION step add a value, and write '
            "{flag: true} for a value of the name flag"
        )
    return Expressed(described)


def singly(described: Described | Sequence[Described] | None) -> Sequence[Described]:
    """The conditions that are described, each by itself; none for `None`."""
    if described is None:
        return ()
    return (described,) if isinstance(described, (str, Mapping)) else described


def packages(described: Described | Sequence[Described] | None) -> Requirement:
    """The packages that these conditions need: Polars for expressions."""
    return POLARS if any(isinstance(each, str) for each in singly(described)) else NOTHING


class AllHold:
    """Chooses the rows that all of some conditions choose."""

    def __init__(self, conditions: Sequence[Condition]) -> None:
        self.conditions = tuple(conditions)
        self.names = frozenset[str]().union(*(each.names for each in conditions))

    def rows(self, batch: Batch) -> tuple[Mask, Failures]:
        """As `Condition.rows`."""
        chosen = np.ones(batch.size, np.bool_)
        failures: Failures = {}
        for each in self.conditions:
            mask, failed = each.rows(batch)
            failures |= {row: error for row, error in failed.items() if chosen[row]}
            chosen = chosen & mask
        return chosen, failures
