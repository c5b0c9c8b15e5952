"""`StallWatch`: finds partitions that have records to deliver and deliver none, though their source is polled."""

from __future__ import annotations

from collections.abc import Mapping

from connectors.records import Records

Partition = tuple[str, int]
"""Topic and partition number."""


class StallWatch:
    """Notes since when each partition of one source has had records and delivered none. Times are monotonic seconds.

    Whether a client library does not fetch, or a connection hangs, a restart is likely to mend it; and no other sign
    would show it: the consumer group is stable, and the service waits. The intake thread writes, any thread may read.
    """

    def __init__(self) -> None:
        self._since: dict[Partition, float] = {}

    def delivered(self, records: Records) -> None:
        """Note that these records were delivered."""
        if self._since:
            for partition in records.places():
                self._since.pop(partition, None)

    def look(self, lag: Mapping[Partition, int], now: float) -> None:
        """While the source is polled: how many records of each partition were not delivered yet, as far as known."""
        behind = {partition for partition, records in lag.items() if records > 0}
        self._since = {partition: self._since.get(partition, now) for partition in behind}

    def reset(self) -> None:
        """Discard all stalls, as the source is not polled at present or its peer is away: no record can come."""
        self._since = {}

    def stalled(self, now: float, patience: float) -> str | None:
        """The partitions that have delivered no record for more than `patience` seconds, as text; `None` if none."""
        long = {partition: now - since for partition, since in self._since.items() if now - since > patience}
        if not long:
            return None
        (topic, number), seconds = max(long.items(), key=lambda item: item[1])
        others = f" (and {len(long) - 1} more partitions)" if len(long) > 1 else ""
        return f"{topic}[{number}] has records to deliver, and none has come for {seconds:.0f} s{others}"
