"""`DrainTime`: the deadlines of a service that was told to stop, which has `limits.drain` to finish its records."""

from __future__ import annotations

import math
import time

LAST_WAIT = 1.0
"""Seconds of `limits.drain`, a quarter of it at most, that are kept for the last confirmations and acknowledgements."""
LEAST_WAIT = 0.25
"""Seconds for these if `limits.drain` is short."""
LEAVE_WAIT = 15.0
"""Seconds that the sources may take to acknowledge the last positions and close, unless the time to drain is over."""
IDLE_LEAVE_WAIT = 1.0
"""Seconds for these, and for opening, if the service is stopped while nothing is in flight: nothing can be lost."""
LEAST_PORTION = 0.05
"""Seconds that a portion of a batch may take, however short the time to drain is."""


class DrainTime:
    """Deadlines on `time.monotonic`, all of them infinite until `begin` is called."""

    def __init__(self, drain: float) -> None:
        """`drain`: `limits.drain` of the service, in seconds."""
        self.deadline = math.inf
        """When the time to drain is over."""
        self.last_wait = min(LAST_WAIT, max(drain / 4, LEAST_WAIT))
        """Seconds that are kept for the last confirmations and acknowledgements."""
        self.longest_portion = max(drain / 4, LEAST_PORTION)
        """Seconds that a portion of a batch may take at any time, as a call of the pipeline cannot be cut short."""
        self._drain = drain
        self._ran_at = 0.0

    @property
    def begun(self) -> bool:
        """Whether the service was told to stop."""
        return self.deadline < math.inf

    @property
    def run_until(self) -> float:
        """When running batches ends, so that the rest of the time is left for confirmations."""
        return self.deadline - self.last_wait

    @property
    def confirm_until(self) -> float:
        """When everything has to be confirmed: at least `last_wait` after the pipeline last ran."""
        return max(self.deadline, self._ran_at + self.last_wait)

    def begin(self) -> None:
        """The service is told to stop; a second call changes nothing. From any thread."""
        if not self.begun:
            self.deadline = time.monotonic() + self._drain

    def ran(self) -> None:
        """The pipeline has just run a batch, or has no batch left to run."""
        self._ran_at = time.monotonic()
