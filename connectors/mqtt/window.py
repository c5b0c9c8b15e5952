"""`Window`: the unacknowledged messages of a broker, in the order of arrival."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from connectors.mqtt.protocol.scan import Scanned
from pipelines.data.spans import Ints

Mask = npt.NDArray[np.bool_]
PacketIds = npt.NDArray[np.uint16]


class Row(NamedTuple):
    """A message that was not acknowledged: its position, and its row in a block."""

    position: int
    block: Scanned
    row: int

    def same_as(self, block: Scanned, row: int) -> bool:
        """Whether it is the same message as that row: topic and payload, byte for byte."""
        mine, its = self.block.topic_codes[self.row], block.topic_codes[row]
        if (mine < 0) != (its < 0) or (mine >= 0 and self.block.topics.names[mine] != block.topics.names[its]):
            return False
        return self.block.payloads[self.row] == block.payloads[row]


class Done(NamedTuple):
    """The packet ids to acknowledge now, in order: by PUBACK, and by PUBREC."""

    qos_1: PacketIds
    qos_2: PacketIds


@dataclass(slots=True)
class _Run:
    """Messages of QoS 1 and 2 that came together. `passed`: messages that are not delivered, and so count as
    finished."""

    block: Scanned
    rows: Ints | None
    """The rows of the block; `None`: all of them."""
    positions: Ints
    packet_ids: PacketIds
    flags: npt.NDArray[np.uint8]
    passed: Mask | None
    kind: int
    """The QoS of all of them; 0 if it differs."""
    follow: bool
    """Whether their positions are consecutive, and none is passed."""
    start: int = 0
    """How many of them are acknowledged already."""

    def first(self, count: int) -> _Run:
        """The next unacknowledged ones."""
        part = slice(self.start, self.start + count)
        passed = None if self.passed is None else self.passed[part]
        rows = np.arange(part.start, part.stop) if self.rows is None else self.rows[part]
        return _Run(
            self.block,
            rows,
            self.positions[part],
            self.packet_ids[part],
            self.flags[part],
            passed,
            self.kind,
            self.follow,
        )

    def done(self, mark: int) -> int:
        """How many of the next ones are done, if all positions below `mark` are."""
        size = len(self.positions) - self.start
        if self.follow:
            return min(size, max(0, mark - int(self.positions[self.start])))
        done = self.positions[self.start :] < mark
        if self.passed is not None:
            done |= self.passed[self.start :]
        return size if done.all() else int(done.argmin())


_QOS = np.uint8(6)
_NONE: PacketIds = np.zeros(0, np.uint16)


class Window:
    """Messages of one connection. Acknowledgements are sent in the order of arrival, as MQTT demands (MQTT-4.6.0-2):
    those of the longest run, from the oldest message on, whose positions are done.
    """

    def __init__(self) -> None:
        self._runs: deque[_Run] = deque()
        self._kept: list[_Run] = []
        self.count = 0
        """The number of unacknowledged messages."""

    def add(self, block: Scanned, positions: Ints, passed: Mask | None, *, follow: bool, alike: bool = False) -> None:
        """Messages came, at these positions; those that are `passed` are not delivered.

        `follow`: the positions are consecutive. `alike`: their flags are known to be equal.
        """
        flags = block.flags
        kind = int(flags[0]) >> 1 & 3
        if kind and (alike or (flags & _QOS == kind << 1).all()):
            follow = follow and passed is None
            self._runs.append(_Run(block, None, positions, block.packet_ids, flags, passed, kind, follow))
            self.count += len(flags)
            return
        rows = np.flatnonzero(flags & _QOS)
        if len(rows):
            passed = None if passed is None else passed[rows]
            self._runs.append(_Run(block, rows, positions[rows], block.packet_ids[rows], flags[rows], passed, 0, False))
            self.count += len(rows)

    def take(self, mark: int, *, keep: bool = False) -> Done:
        """Remove and return the messages that can be acknowledged now, as all positions below `mark` are done.

        With `keep` they are kept until `confirmed`: `rows` returns them as long as it is not known whether the
        acknowledgement arrived.
        """
        first: list[PacketIds] = []
        second: list[PacketIds] = []
        while self._runs:
            run = self._runs[0]
            count = run.done(mark)
            stop = run.start + count
            if count:
                ids = run.packet_ids[run.start : stop]
                if run.kind == 1:
                    first.append(ids)
                else:
                    qos = run.flags[run.start : stop] & _QOS
                    first.append(ids[qos == 2])
                    second.append(ids[qos == 4])
                self.count -= count
                if keep:
                    self._kept.append(run.first(count))
            if stop < len(run.positions):
                run.start = stop
                break
            self._runs.popleft()
        return Done(_joined(first), _joined(second))

    def confirmed(self) -> None:
        """The acknowledgements of all messages that `take` kept have arrived."""
        self._kept.clear()

    def rows(self) -> dict[int, Row]:
        """The messages in the window that are not passed, by packet id."""
        found: dict[int, Row] = {}
        for run in (*self._kept, *self._runs):
            for at in range(run.start, len(run.positions)):
                if run.passed is None or not run.passed[at]:
                    row = at if run.rows is None else int(run.rows[at])
                    found[int(run.packet_ids[at])] = Row(int(run.positions[at]), run.block, row)
        return found

    def clear(self) -> None:
        """The connection is gone: its messages cannot be acknowledged any more."""
        self._runs.clear()
        self._kept.clear()
        self.count = 0


def _joined(ids: list[PacketIds]) -> PacketIds:
    if len(ids) == 1:
        return ids[0]
    return np.concatenate(ids) if ids else _NONE
