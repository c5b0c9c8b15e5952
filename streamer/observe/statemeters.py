"""`StateMeters`: the metrics of saving what steps remember, and of loading it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from pipelines.observe.meters import Counter, Distribution, Meter, Reading
from streamer.observe.metrics import SECONDS


class StateMeters:
    """Written by the run thread, read by any."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` gives seconds."""
        self._clock = clock
        self.checkpoint = Distribution("streamer_state_checkpoint_seconds", "How long saving state took.", SECONDS)
        self.load = Distribution("streamer_state_load_seconds", "How long loading a partition's state took.", SECONDS)
        self.written = Counter("streamer_state_written_bytes", "Bytes of state that were saved.")
        self.passed_over = Counter(
            "streamer_state_passed_over_records", "Records that came again though the saved state had seen them."
        )
        self.bytes: int | None = None
        """How large the saved state is; `None`: its store does not know."""
        self._saved_at = clock()

    def saved(self, seconds: float, written: int, size: int | None) -> None:
        """What the steps remember was saved in so many seconds: `written` bytes of it; `size` has all that is saved."""
        self.checkpoint.add_one(seconds)
        self.written.add(written)
        self.bytes = size

    def is_saved(self) -> None:
        """All that the steps remember is saved now."""
        self._saved_at = self._clock()

    def readings(self) -> Iterator[Reading]:
        """All metrics with their values now."""
        yield from (meter.reading() for meter in vars(self).values() if isinstance(meter, Meter))
        age = self._clock() - self._saved_at
        text = "Seconds since all that the steps remember was saved."
        yield Reading("streamer_state_checkpoint_age_seconds", text, "gauge", (), [((), age)])
        if self.bytes is not None:
            yield Reading("streamer_state_bytes", "How large the saved state is.", "gauge", (), [((), self.bytes)])
