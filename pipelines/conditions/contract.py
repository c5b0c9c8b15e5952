"""`Condition`: what chooses rows of a batch."""

from __future__ import annotations

from typing import Protocol

from pipelines.data.batch import Batch
from pipelines.data.columns import Mask

Failures = dict[int, Exception]
"""Position in the batch to the error of the row."""


class Condition(Protocol):
    """Chooses rows of a batch. Whether a row is chosen does not depend on the rows beside it."""

    names: frozenset[str]
    """The keys of the values that it looks at."""

    def rows(self, batch: Batch) -> tuple[Mask, Failures]:
        """The chosen rows, `bool (N,)`, and the errors of rows that cannot be compared, which are not chosen."""
