"""`Expressed`: rows are chosen by an SQL expression, `temp > 5 and room = 'freezer'`."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from pipelines.conditions.contract import Failures
from pipelines.data.batch import Batch
from pipelines.data.columns import Mask
from pipelines.expressions.evaluation import Evaluation
from pipelines.expressions.expression import Expression
from pipelines.expressions.kinds import Kind


class Expressed:
    """Chooses the rows for which an expression is true; one that is missing (null) is not.

    Raises `DefinitionError` where `text` is no expression that is true or false, and `MissingPackageError` without
    Polars.
    """

    def __init__(self, text: str) -> None:
        expression = Expression(text, boolean=True)
        self._evaluation = Evaluation([expression])
        self.names = frozenset(expression.names)
        self.kinds: Mapping[str, Kind] = expression.kinds

    def rows(self, batch: Batch) -> tuple[Mask, Failures]:
        """As `Condition.rows`."""
        failures: Failures = {}
        chosen = np.zeros(batch.size, np.bool_)
        for part in self._evaluation.run(batch, failures):
            (result,) = part.results
            chosen[slice(None) if part.rows is None else part.rows] = result.to_numpy()
        return chosen, failures
