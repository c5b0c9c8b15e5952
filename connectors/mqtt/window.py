"""`Window`: the messages of a broker's session that are not finished, in the order of arrival."""

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
    """`None`: none is passed, and positions of all rows are consecutive."""
    kind: int
    """The QoS of all of them; 0 if it differs."""
    start: int = 0
    """How many of them are acknowledged already."""

    def first(self, count: int) -> _Run:
        """The next unacknowledged messages."""
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
        )

    def done(self, mark: int) -> int:
        """The number of next messages that are done if all positions below `mark` are."""
        size = len(self.positions) - self.start
        if self.rows is None and self.passed is None:
            return min(size, max(0, mark - int(self.positions[self.start])))
        done = self.positions[self.start :] < mark
        if self.passed is not None:
            done |= self.passed[self.start :]
        return size if done.all() else int(done.argmin())


_QOS = np.uint8(6)
_NONE: PacketIds = np.zeros(0, np.uint16)


class Window:
    """The messages that came and are not finished: those of this connection, which the broker waits to be
    acknowledged, those of QoS 0, which it will not send again, and those of an earlier connection, which may come
    again.

    Acknowledgements are sent in the order of arrival, as MQTT demands (MQTT-4.6.0-2): those of the longest run, from
    the oldest message on, whose positions are done.
    """

    def __init__(self) -> None:
        self.count = 0
        """The number of messages of this connection that are not acknowledged."""
        self._mark = 0
        self._runs: deque[_Run] = deque()
        self._kept: list[_Run] = []
        self._only_once: deque[Ints] = deque()
        """Positions of messages of QoS 0, in blocks."""
        self._before: dict[int, Row] = {}
        """Messages of QoS 1 and 2 of an earlier connection that may come again, by packet id."""
        self._released: set[int] = set()
        """Packet ids of messages of QoS 2 that were acknowledged by PUBREC, and not released by PUBREL."""

    def begin(self) -> int:
        """Positions begin anew. Returns how many messages of QoS 0 were not finished."""
        mark, self._mark = self._mark, 0
        count = sum(int((positions >= mark).sum()) for positions in self._only_once)
        self._only_once.clear()
        return count

    def cut(self) -> None:
        """The connection is gone: its messages cannot be acknowledged any more, and may come again."""
        self._before |= self._rows()
        self._clear()

    def rewound(self) -> None:
        """All messages are to be delivered again when they come again."""
        self._before.clear()
        self._clear()

    def session_lost(self) -> None:
        """The broker has forgotten the session: messages of earlier connections do not come again."""
        self._before.clear()
        self._released.clear()

    def released(self, packet_id: int) -> None:
        """PUBREL: the broker has released this message of QoS 2."""
        self._released.discard(packet_id)

    @property
    def expects(self) -> bool:
        """Whether messages of an earlier connection may come again: then `match` is to be called before `add`."""
        return bool(self._released or self._before)

    def match(self, block: Scanned, positions: Ints, wanted: Mask, passed: Mask) -> int:
        """Find the messages that came before the connection was cut: they get their positions of then, and are not
        delivered again. Changes the three arrays; returns how many are not finished yet."""
        matched = 0
        for row in np.flatnonzero(block.qos).tolist():
            packet_id = int(block.packet_ids[row])
            if packet_id in self._released:
                # Its PUBREC was lost: the message is done.
                wanted[row], passed[row] = False, True
                continue
            before = self._before.pop(packet_id, None)
            if before is not None and before.same_as(block, row):
                positions[row] = before.position
                wanted[row] = passed[row] = False
                matched += 1
        return matched

    def add(
        self, block: Scanned, positions: Ints, wanted: Mask | None, passed: Mask | None, *, alike: bool = False
    ) -> None:
        """Messages came, at these positions. `None`: all are `wanted`, to be delivered; none is `passed`, that is not
        delivered, and the positions are consecutive. `alike`: their flags are known to be equal.
        """
        flags = block.flags
        kind = int(flags[0]) >> 1 & 3
        if kind and (alike or (flags & _QOS == kind << 1).all()):
            self._runs.append(_Run(block, None, positions, block.packet_ids, flags, passed, kind))
            self.count += len(flags)
            return
        rows = np.flatnonzero(flags & _QOS)
        if len(rows):
            passed = None if passed is None else passed[rows]
            self._runs.append(_Run(block, rows, positions[rows], block.packet_ids[rows], flags[rows], passed, 0))
            self.count += len(rows)
        once = block.qos == 0
        if len(once := positions[once if wanted is None else once & wanted]):
            self._only_once.append(once)

    def add_passed(self, block: Scanned, position: int) -> None:
        """Add a message that was not kept: it is acknowledged when those before it are."""
        self._before.pop(int(block.packet_ids[0]), None)
        self.add(block, np.array([position], np.int64), np.zeros(1, np.bool_), np.ones(1, np.bool_))

    def finish(self, mark: int) -> None:
        """Note that all positions below `mark` are done."""
        self._mark = mark = max(self._mark, mark)
        while self._only_once and self._only_once[0][-1] < mark:
            self._only_once.popleft()

    def take(self, *, keep: bool = False) -> Done:
        """Remove and return the messages that can be acknowledged now, as all before them are done.

        With `keep` they are kept until `confirmed`: they may come again as long as it is not known whether the
        acknowledgement arrived.
        """
        first: list[PacketIds] = []
        second: list[PacketIds] = []
        while self._runs:
            run = self._runs[0]
            count = run.done(self._mark)
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
        done = Done(_joined(first), _joined(second))
        if second:
            self._released.update(done.qos_2.tolist())
        return done

    @property
    def is_unsure(self) -> bool:
        """Whether messages that are done, and came on an earlier connection, may come again."""
        return any(row.position < self._mark for row in self._before.values())

    def confirmed(self) -> None:
        """The broker has the acknowledgements of all messages that are done: those that it lacked have come again."""
        self._kept.clear()
        self._before = {number: row for number, row in self._before.items() if row.position >= self._mark}

    def _rows(self) -> dict[int, Row]:
        """The messages of this connection that are not passed, by packet id."""
        rows: dict[int, Row] = {}
        for run in (*self._kept, *self._runs):
            for at in range(run.start, len(run.positions)):
                if run.passed is None or not run.passed[at]:
                    row = at if run.rows is None else int(run.rows[at])
                    rows[int(run.packet_ids[at])] = Row(int(run.positions[at]), run.block, row)
        return rows

    def _clear(self) -> None:
        self._runs.clear()
        self._kept.clear()
        self.count = 0


def _joined(ids: list[PacketIds]) -> PacketIds:
    if len(ids) == 1:
        return ids[0]
    return np.concatenate(ids) if ids else _NONE
