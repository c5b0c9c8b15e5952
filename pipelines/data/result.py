"""`Result`: the outcome of each row that a runner or an executor was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import Rows

NONE_HELD: Rows = np.zeros(0, np.int64)


class Gathered(NamedTuple):
    """Rows that a step made of what it remembers: the record of a row alone does not make it again."""

    batch: Batch
    """The rows as the step made them, under the numbers that they have in its result."""
    byte_count: int
    """About how many bytes their values take."""


@dataclass(slots=True)
class Result:
    """Every row that went in is emitted, failed, dropped or held; keys are row numbers (`Batch.rows`).

    `batch` holds the emitted rows with the numbers of their parents; a record may be emitted several times. A number
    stands in one of the four, but for one case: emitted and held means that more results of the record will come.
    A record with several rows of which one fails has failed: an executor emits none of them, nor a row that it shares
    with other records (a window); those records fail with it unless they have other results.
    """

    batch: Batch
    failed: Mapping[int, Exception] = field(default_factory=dict)
    """Row number to the error: from an executor always a `StepError` with the step's name."""
    dropped: Mapping[int, str] = field(default_factory=dict)
    """Row number to the reason: dropped on purpose, by a filter."""
    held: Rows = field(default_factory=NONE_HELD.view)
    """Row numbers that a stateful step keeps for a later result, `int64`. A held row is finished as soon as a later
    result names it without holding it again; one that a step holds whose state is saved (`StatefulRunner.saves`) is
    finished at once, and not among those of an executor."""
    timed: Sequence[Batch] = ()
    """The rows that came from no batch, as steps made them whose time had come (`StatefulRunner.tick`). Their origin
    gives the records they belong to, also of those that failed later."""
    gathered: Sequence[Gathered] = ()
    """What steps made of earlier records too (windows), also what failed later; a later step's behind an earlier
    one's. If such a row fails, its record alone is not what failed."""

    @property
    def rows(self) -> Rows:
        """The parents of the emitted rows: `batch.rows`."""
        return self.batch.rows
