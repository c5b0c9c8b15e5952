"""`Pace`: small batches that the pipeline runs quickly travel through the agent together.

What the agent does for each batch (decode, ledger, encode, send) costs more than a small model. So where records wait
already, several batches' worth of them are decoded, sent and confirmed at once; models and functions still get
`batch.max_records` at a time. How many is bounded by time: a result waits for what runs within `LONGEST`.
"""

from __future__ import annotations

from typing import Final

TOGETHER: Final = 2048
"""Records that travel together at most."""
TOGETHER_BYTES: Final = 4 * 2**20
"""Bytes of them, about: more would not stay in the processor's cache."""
LONGEST: Final = 0.002
"""Seconds that the pipeline may take for all batches that travel together."""
_SHARE: Final = 0.2
"""Weight of the newest batch in the mean; one that takes long counts at once, as it is so much longer."""


class Pace:
    """How many batches may travel together. The run thread writes it, intake threads read it."""

    def __init__(self, max_records: int) -> None:
        self.batches = 1
        """That many."""
        self._most = max(1, TOGETHER // max_records)
        self._mean: float | None = None

    def ran(self, seconds: float, batches: int) -> None:
        """The pipeline took so long for so many batches."""
        each = seconds / batches
        self._mean = each if self._mean is None else self._mean + _SHARE * (each - self._mean)
        self.batches = max(1, min(self._most, int(LONGEST / max(self._mean, 1e-9))))
