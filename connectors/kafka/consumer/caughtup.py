"""`CaughtUp`: the time by which all records of the partitions had come that were delivered."""

from __future__ import annotations

import math
import time
from typing import Final

from connectors.kafka.client.queries import EndsAsked, Queries
from connectors.kafka.consumer.lanes import Lanes, Place, Progress
from connectors.records import Lane

_LOOK_AFTER: Final = 0.1
_ASK_AFTER: Final = 1.0
"""Seconds between two requests at least."""


class CaughtUp:
    """Asks the brokers where the partitions end. Once everything up to there was delivered, the source has caught up
    with the time at which it asked, and asks again.

    So the time goes on in a consumer that always has a backlog, too, and stands still as long as a partition is not
    read. What the client itself knows of the ends does not tell it: that is as old as its last fetch, and it fetches
    none while it holds enough. Records of a transaction come when that ends.
    """

    def __init__(self, lanes: Lanes, queries: Queries) -> None:
        self.moment = -math.inf
        """All records that had come by then were delivered, on `time.monotonic`."""
        self._lanes = lanes
        self._queries = queries
        self._asked: EndsAsked = {}
        self._asked_at = -math.inf
        self._asked_of: dict[Place, Lane] = {}
        self._ends: dict[Lane, int] = {}
        """The answers. A lane that has begun since has none: its partition may have been created anew."""
        self._look_at = 0.0

    def look(self, *, holds_any: bool) -> None:
        """Update `moment`. `holds_any`: records were received that are not delivered."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_AFTER
        for place, end in self._queries.ends(self._asked).items():
            self._ends[self._asked_of[place]] = end
        progresses = list(self._lanes)
        if progresses:
            has_all = all(self._has_all(progress, holds_any=holds_any) for progress in progresses)
            knows_all = all(progress.lane in self._ends for progress in progresses)
        else:
            # There is nothing to wait for, unless partitions were lost that it has asked of.
            has_all = knows_all = not self._asked_of
        if has_all:
            self.moment = self._asked_at
        elif self._asked or knows_all:
            return
        if now - self._asked_at >= _ASK_AFTER:
            self._asked_at = now
            self._asked_of = {progress.place: progress.lane for progress in progresses}
            self._asked = self._queries.ask_ends(self._asked_of)
            self._ends = {}

    def _has_all(self, progress: Progress, *, holds_any: bool) -> bool:
        """Whether all up to the end was delivered that the brokers told."""
        end = self._ends.get(progress.lane)
        if end is None:
            return False
        # What is behind the last record, such as markers of transactions, is never delivered: the client has passed it.
        # It may have while records before it are held here.
        passed = -1 if holds_any else max(progress.ended, progress.passed)
        return max(progress.delivered, passed) >= end
