"""`Pace`: small batches that the pipeline runs quickly travel through the agent together.

What the agent does for each batch (decode, ledger, encode, send) costs more than a small model. So where records wait
already, several batches' worth of them are decoded, sent and confirmed at once; models and functions still get
`batch.max_records` at a time. How many is bounded by time: a result waits for what runs within `LONGEST`.
"""

from __future__ import annotations

from collections import deque
from typing import Final

TOGETHER: Final = 8192
"""Records that travel together at most."""
TOGETHER_BYTES: Final = 4 * 2**20
"""Bytes of them, about."""
LONGEST: Final = 0.004
"""Seconds that the pipeline may take for all batches that travel together."""
_LAST: Final = 4
"""Runs that are looked at. The quickest of them counts: what others took longer is the machine's doing as a rule, where
threads and processes wait for each other, and smaller batches would only make it worse."""


class Pace:
    """How many batches may travel together. The run thread writes it, intake threads read it."""

    def __init__(self, max_records: int) -> None:
        self.batches = 1
        """That many."""
        self._most = max(1, TOGETHER // max_records)
        self._last: deque[float] = deque(maxlen=_LAST)

    def ran(self, seconds: float, batches: int) -> None:
        """The pipeline took so long for so many batches."""
        self._last.append(seconds / batches)
        self.batches = max(1, min(self._most, int(LONGEST / max(min(self._last), 1e-9))))
