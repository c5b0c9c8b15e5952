"""`SourceWatch`: the lanes of one source, and whether it does its work: its peer can be reached, records come."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from connectors.records import Lane, Records
from connectors.source import CheckpointNote, LaneBegan, LaneEnded, Replays, Source, SourceDown, SourceEnded

STANDING_STILL = 1.0
"""Seconds without a poll after which `Source.standing_still` is called."""
SIGN_OF_LIFE = 0.1
"""Seconds between two of these calls."""
LANES_LOG_INTERVAL = 60.0
"""Seconds between two lines of the log about lanes that ended."""
LOOK_AFTER = 0.5
"""Seconds between two calls of `Source.lag`."""

Partition = tuple[str, int]
"""Topic and partition number."""


class SourceWatch:
    """The lanes and the health of one source. Times are seconds on `time.monotonic`.

    A partition that has records but delivers none while the source is polled is stalled: a client library has stopped
    fetching, or a connection hangs. A restart is likely to mend that, and nothing else shows it: the consumer group is
    stable, and the service waits. The intake thread writes, any thread may read.
    """

    def __init__(self, source: Source, stuck_after: float, log: Any) -> None:
        """`stuck_after`: seconds after which a source that has records and delivers none counts as stuck."""
        self.source = source
        self.lanes: dict[Lane, int] = {}
        """The lanes that the source delivers at present, and where each begins; -1: not known."""
        self.noted: dict[Lane, CheckpointNote | None] = {}
        """What the bus has with these beginnings."""
        self.has_ended = False
        """Whether the source delivers no more records, unless a lane begins."""
        self.fault: str | None = None
        """Why the source's peer cannot be reached, or the error that it failed with."""
        self.has_reported = False
        """Whether the events of its opening were looked at, so that `down` is known."""
        self.is_asked = False
        """Whether its records are requests of clients of this process; known once it is open."""
        self.codec_waits: str | None = None
        """Why no record can be decoded at present."""
        self.lag: Mapping[Partition, int] = {}
        """Records behind the end, at most about a second old."""
        self.progress_at = time.monotonic()
        """When the intake thread last served its messages."""
        self._stuck_after = stuck_after
        self._log = log
        self._stalled_since: dict[Partition, float] = {}
        self._stuck_logged = False
        self._still = False
        self._sign_at = 0.0
        self._look_at = 0.0
        self._lanes_unlogged = 0
        self._log_lanes_at = 0.0

    @property
    def down(self) -> str | None:
        """Why no records come, or none can be decoded; `None` while they can."""
        return self.fault or self.codec_waits

    def delivered(self, records: Records) -> None:
        """Note that these records were delivered."""
        if self._stalled_since:
            for partition in records.places():
                self._stalled_since.pop(partition, None)

    def polls(self) -> None:
        """Note that the source is about to be polled."""
        self._sign_at = time.monotonic() + STANDING_STILL
        if self._still:
            self._still = False
            self.source.standing_still(False)

    def stands_still(self) -> bool:
        """Call `Source.standing_still` if that is due, so that the source serves its bus; whether it was called.

        To be called repeatedly while polling has stopped.
        """
        now = time.monotonic()
        if now < self._sign_at:
            return False
        self._sign_at = now + SIGN_OF_LIFE
        self._still = True
        self.source.standing_still(True)
        return True

    def ended_lanes(self) -> tuple[list[Lane], list[Lane]]:
        """Handle the source's events. Returns the ended lanes: first those that belong to other consumers now, or come
        again; then those whose records no consumer gets again, so that the polled ones are finished."""
        gone: list[Lane] = []
        left: list[Lane] = []
        for event in self.source.events():
            if isinstance(event, LaneBegan):
                # In this order: another thread looks for the note of a lane that it has seen.
                self.noted[event.lane] = event.noted
                self.lanes[event.lane] = event.position
                self.has_ended = False
            elif isinstance(event, LaneEnded):
                (left if event.finish else gone).append(event.lane)
                self.lanes.pop(event.lane, None)
                self.noted.pop(event.lane, None)
            elif isinstance(event, SourceEnded):
                self.has_ended = True
            elif isinstance(event, SourceDown):
                self.fault = event.reason if event.down else None
                self._log.warning("source down" if event.down else "source up", reason=event.reason)
        self._lanes_unlogged += len(left)
        self.has_reported = True
        return gone, left

    def look(self, *, starved: bool) -> None:
        """Check for stalled partitions, every `LOOK_AFTER` seconds at most. While the source waits for acknowledgements
        (`starved`), no partition counts as stalled."""
        now = time.monotonic()
        if self._lanes_unlogged and now >= self._log_lanes_at:
            # Usual for sources that never deliver again: a film begins anew, a camera is connected to again. Once a
            # minute at most, as clients of an endpoint may connect thousands of times.
            log = self._log.debug if self.source.replays is Replays.NONE else self._log.warning
            log(
                "lanes ended for good, records already polled are finished",
                source=self.source.name,
                lanes=self._lanes_unlogged,
            )
            self._lanes_unlogged, self._log_lanes_at = 0, now + LANES_LOG_INTERVAL
        if now < self._look_at:
            return
        self._look_at = now + LOOK_AFTER
        self.lag = self.source.lag()
        # While it is not polled, or its peer is away, no record can come.
        can_deliver = not (self._still or starved or self.down is not None)
        behind = [partition for partition, records in self.lag.items() if records > 0] if can_deliver else []
        self._stalled_since = {partition: self._stalled_since.get(partition, now) for partition in behind}
        reason = self.stuck()
        if reason is not None and not self._stuck_logged:
            self._log.error("the source is stuck, /live fails", reason=reason)
        self._stuck_logged = reason is not None

    def stuck(self) -> str | None:
        """Why the process should be restarted: no progress, or a partition that is stalled for long; else `None`."""
        now = time.monotonic()
        name = f"source {self.source.name}"
        if now - self.progress_at > self._stuck_after:
            return f"{name}: its thread has made no progress for {now - self.progress_at:.0f} s"
        since = self._stalled_since
        long = {partition: now - at for partition, at in since.items() if now - at > self._stuck_after}
        if not long:
            return None
        (topic, number), seconds = max(long.items(), key=lambda item: item[1])
        others = f" (and {len(long) - 1} more partitions)" if len(long) > 1 else ""
        return f"{name}: {topic}[{number}] has records to deliver, and none has come for {seconds:.0f} s{others}"
