"""`Window`: what a broker has sent and waits to be acknowledged, in the order in which it came."""

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
    """A message in hand: its position, and where it stands."""

    position: int
    block: Scanned
    row: int

    def same_as(self, block: Scanned, row: int) -> bool:
        """Whether that is the same message: topic and payload, byte for byte."""
        mine, its = self.block.topic_codes[self.row], block.topic_codes[row]
        if (mine < 0) != (its < 0) or (mine >= 0 and self.block.topics.names[mine] != block.topics.names[its]):
            return False
        return self.block.payloads[self.row] == block.payloads[row]


class Done(NamedTuple):
    """The packet ids to be acknowledged now, in order: by PUBACK, and by PUBREC."""

    qos_1: PacketIds
    qos_2: PacketIds


@dataclass(slots=True)
class _Run:
    """Messages of QoS 1 and 2 that came together. `passed` are those that need nobody to finish them."""

    block: Scanned
    rows: Ints | None
    """Which rows of the block; `None`: all of them."""
    positions: Ints
    packet_ids: PacketIds
    qos: npt.NDArray[np.uint8]
    passed: Mask | None
    start: int = 0
    """How many of them are acknowledged already."""

    def first(self, count: int) -> _Run:
        """The next ones that are not acknowledged."""
        part = slice(self.start, self.start + count)
        passed = None if self.passed is None else self.passed[part]
        rows = np.arange(part.start, part.stop) if self.rows is None else self.rows[part]
        return _Run(self.block, rows, self.positions[part], self.packet_ids[part], self.qos[part], passed)


NOTHING = Done(np.zeros(0, np.uint16), np.zeros(0, np.uint16))


class Window:
    """Messages of one connection. Acknowledgements leave in the order of arrival, as MQTT demands (MQTT-4.6.0-2):
    so those of the longest run from the oldest on whose positions are done.
    """

    def __init__(self) -> None:
        self._runs: deque[_Run] = deque()
        self._kept: list[_Run] = []
        self.count = 0
        """Messages that are not acknowledged."""

    def add(self, block: Scanned, positions: Ints, passed: Mask | None) -> None:
        """These came, at these positions; those that are `passed` are not delivered."""
        qos = block.qos
        if qos.all():
            self._runs.append(_Run(block, None, positions, block.packet_ids, qos, passed))
            self.count += len(qos)
            return
        rows = np.flatnonzero(qos)
        if len(rows):
            passed = None if passed is None else passed[rows]
            self._runs.append(_Run(block, rows, positions[rows], block.packet_ids[rows], qos[rows], passed))
            self.count += len(rows)

    def take(self, mark: int, *, keep: bool = False) -> Done:
        """Those that can be acknowledged now, as all positions below `mark` are done; they leave the window.

        With `keep` they are remembered until `confirmed`: `rows` gives them as long as it is not known whether the
        acknowledgement arrived.
        """
        ids: list[PacketIds] = []
        qos: list[npt.NDArray[np.uint8]] = []
        while self._runs:
            run = self._runs[0]
            done = run.positions[run.start :] < mark
            if run.passed is not None:
                done |= run.passed[run.start :]
            size = len(done)
            count = size if done.all() else int(done.argmin())
            stop = run.start + count
            ids.append(run.packet_ids[run.start : stop])
            qos.append(run.qos[run.start : stop])
            self.count -= count
            if keep and count:
                self._kept.append(run.first(count))
            if count < size:
                run.start = stop
                break
            self._runs.popleft()
        return _done(ids, qos)

    def confirmed(self) -> None:
        """The acknowledgements of all that `take` kept have arrived."""
        self._kept.clear()

    def rows(self) -> dict[int, Row]:
        """What is in it, and what it keeps, by packet id, without what is passed."""
        found: dict[int, Row] = {}
        for run in (*self._kept, *self._runs):
            for at in range(run.start, len(run.positions)):
                if run.passed is None or not run.passed[at]:
                    row = at if run.rows is None else int(run.rows[at])
                    found[int(run.packet_ids[at])] = Row(int(run.positions[at]), run.block, row)
        return found

    def clear(self) -> None:
        """The connection is gone: nothing of it can be acknowledged any more."""
        self._runs.clear()
        self._kept.clear()
        self.count = 0


def _done(ids: list[PacketIds], qos: list[npt.NDArray[np.uint8]]) -> Done:
    if not ids:
        return NOTHING
    packet_ids = ids[0] if len(ids) == 1 else np.concatenate(ids)
    kinds = qos[0] if len(qos) == 1 else np.concatenate(qos)
    second = kinds == 2
    if not second.any():
        return Done(packet_ids, NOTHING.qos_2)
    return Done(packet_ids[~second], packet_ids[second])
