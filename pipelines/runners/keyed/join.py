"""Runs JOIN."""

from __future__ import annotations

import json
import logging
import re
import struct
from collections.abc import Hashable, Iterable, Sequence
from itertools import islice
from typing import Any, ClassVar, Final

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.data import Data
from pipelines.data.result import Gathered, Result
from pipelines.data.sparsecolumn import columns_of
from pipelines.errors import DataError, StreamerError, nearest
from pipelines.observe.metrics import JOIN_EVICTED, JOIN_MISSING, JOIN_WAITING
from pipelines.runners.keyed.keyedrunner import by_number
from pipelines.runners.keyed.waitingrecords import Place, Waiting, WaitingRecords
from pipelines.runners.runner import OpenContext, StatefulRunner
from pipelines.runners.state.item import Change, Item
from pipelines.runners.state.lastrecords import bare_records, loaded_record, saved_record
from pipelines.runners.state.recordkeys import key_of, keys_of, plain, text_of
from pipelines.runners.state.recordtimes import RecordTimes
from pipelines.runners.state.timed import timed
from pipelines.steps.keyed.join import Join
from pipelines.wire.columns import decode_columns, encode_columns

MOST_AT_ONCE: Final = 1024
"""Records without others that one call of `tick` gives, so that it is short however many there are."""
_NO_SIDE: Final = -1
"""In place of the side of a record that is of none of the topics."""
_VERSION: Final = b"\x01"
# Time, whether it waited in vain, and the length of the JSON text behind: the key of its topic, and the record.
_HEAD: Final = struct.Struct("<q?I")

_log = logging.getLogger("pipelines.keyed")


class JoinRunner(StatefulRunner):
    """Has records wait for those of other topics, and gives them together.

    Records belong together within a partition of the source: partition 3 of one topic goes with partition 3 of the
    others. A record that waits is saved as a piece of its own, with its values, for the lane that it came in.
    """

    saves: ClassVar[bool] = True
    opens_images: ClassVar[bool] = False

    def __init__(self, step: Join, context: OpenContext) -> None:
        self._step = step
        self._name = context.step or step.type_name
        self._names = list(step.topics)
        self._exact = {topic: side for side, topic in enumerate(step.topics.values()) if not topic.startswith("^")}
        self._patterns = [
            (re.compile(topic), side) for side, topic in enumerate(step.topics.values()) if topic.startswith("^")
        ]
        self._times = RecordTimes(step.time, ahead=step.ahead, clock=context.clock)
        self._waiting = WaitingRecords(
            len(step.topics), round(step.within * 1000), round(step.lateness * 1000), step.most
        )
        self._partitions: dict[Hashable, tuple[str, int]] = {}
        """The source and the partition of each lane."""
        self._missing = context.metrics.counter(JOIN_MISSING, "Records for which none came from another topic.")
        self._pushed_out = context.metrics.counter(
            JOIN_EVICTED, "Records that no longer wait because there are too many."
        )
        self._count = context.metrics.gauge(JOIN_WAITING, "Records that wait for those of other topics.")

    @property
    def gives(self) -> frozenset[str] | None:
        """The key, and a record of each topic."""
        return None if self._step.missing == "emit" else frozenset([*self._step.by, *self._names])

    def limit(self, records: int) -> bool:
        """Batches may be of any size."""
        return True

    def run_batch(self, batch: Batch) -> Result:
        """The records that are complete, each in place of the one that came last."""
        failed: dict[int, Exception] = {}
        values = batch.row_values(failed)
        times, untimed = self._times.of(batch)
        keys, keyless = keys_of(batch, self._step.by)
        lanes = batch.lanes()
        sides = self._sides(batch, failed)
        failed = {**keyless, **untimed, **failed}
        joined: list[tuple[int, Sequence[Waiting]]] = []
        new: dict[Waiting, None] = {}
        self._note_partitions(batch, lanes)
        arrive, partitions = self._waiting.arrive, self._partitions
        for row, (key, lane, side, time) in enumerate(zip(keys, lanes, sides, times.tolist(), strict=True)):
            if row in failed:
                continue
            outcome = arrive((partitions[lane], key), lane, side, time, row)
            if isinstance(outcome, Waiting):
                new[outcome] = None
                continue
            joined.append((row, outcome))
            for part in outcome:
                new.pop(part, None)
        together = self._together(batch, values, joined, sides)
        gathered = (Gathered(together, _bytes_of(part for _, parts in joined for part in parts)),) if joined else ()
        self._keep(batch, list(new), failed)
        self._tell()
        others = np.ones(batch.size, np.bool_)
        others[[*failed, *(row for row, _ in joined)]] = False
        held = batch.numbers(np.flatnonzero(others))[0]
        return Result(together, by_number(batch, failed), held=held, gathered=gathered)

    def tick(self, now: float) -> Result:
        """The records that have waited in vain."""
        self._waiting.clock.tick(now, self.caught_up)
        self._waiting.end_old(self._step.patience)
        return self._alone(list(islice(self._waiting.over, MOST_AT_ONCE)))

    def flush(self) -> Result:
        """All records that wait, as no others come."""
        self._waiting.end_all()
        return self._alone(list(self._waiting.over))

    def forget(self, lanes: Iterable[Hashable]) -> None:
        """Forget the records of these lanes; what is saved of them stays."""
        lanes = list(lanes)
        for lane in lanes:
            self._partitions.pop(lane, None)
        self._waiting.forget(lanes, self._partitions.values())
        self._tell()

    def changes(self) -> Iterable[Change]:
        """The records that began to wait, and those that no longer do."""
        gone, self._waiting.gone = self._waiting.gone, {}
        changed, self._waiting.changed = self._waiting.changed, {}
        for waiting in changed:
            waiting.saved = True
            yield Change(waiting.lane, text_of(waiting.place[1]), waiting.number, self._written(waiting))
        for lane, key, number in gone:
            yield Change(lane, text_of(key), number, None)

    def load(self, lane: Hashable, items: Iterable[Item]) -> None:
        """Begin a lane with the records that waited."""
        self.forget([lane])
        records = [self._read(lane, item) for item in sorted(items, key=lambda item: item.part)]
        _values_of(records)
        for waiting in records:
            self._waiting.load(waiting)
        self._tell()

    def _sides(self, batch: Batch, failed: dict[int, Exception]) -> list[int]:
        """The side of each record; those of other topics fail."""
        topics = batch.topics()
        side_of = {topic: self._side(topic) for topic in set(topics)}
        sides = [side_of[topic] for topic in topics]
        if _NO_SIDE in side_of.values():
            for row, topic in enumerate(topics):
                if side_of[topic] == _NO_SIDE:
                    failed.setdefault(row, self._other_topic(topic))
        return sides

    def _side(self, topic: str | None) -> int:
        if topic is None:
            return _NO_SIDE
        side = self._exact.get(topic)
        if side is None:
            side = next((side for pattern, side in self._patterns if pattern.search(topic)), _NO_SIDE)
        return side

    def _other_topic(self, topic: str | None) -> DataError:
        known = ", ".join(f"{topic} ({name})" for name, topic in self._step.topics.items())
        if topic is None:
            return DataError(f"it has no topic; records of {known} are joined")
        return DataError(
            f'it is of the topic "{topic}"{nearest(topic, list(self._exact))}; records of {known} are joined'
        )

    def _note_partitions(self, batch: Batch, lanes: Sequence[Hashable]) -> None:
        if batch.origin is None:
            return
        for lane in dict.fromkeys(lanes):
            if lane not in self._partitions:
                record = batch.origin.record(int(batch.parents(lanes.index(lane))[0]))
                self._partitions[lane] = ("", 0) if record is None else (record.source, record.partition)

    def _together(
        self,
        batch: Batch,
        values: Sequence[dict[str, Any]],
        joined: Sequence[tuple[int, Sequence[Waiting]]],
        sides: Sequence[int],
    ) -> Batch:
        earlier = [part for _, parts in joined for part in parts if part.row < 0]
        kept = dict(zip(earlier, _values_of(earlier), strict=True))
        rows = []
        for row, parts in joined:
            by_side = {part.side: values[part.row] if part.row >= 0 else kept[part] for part in parts}
            by_side[sides[row]] = values[row]
            rows.append(
                {name: values[row][name] for name in self._step.by}
                | {name: Data.trusted(by_side[side]) for side, name in enumerate(self._names)}
            )
        numbers, splits = batch.numbers(np.array([row for row, _ in joined], np.int64))
        return Batch(columns_of(rows), len(rows), rows=numbers, splits=splits, origin=batch.origin)

    def _keep(self, batch: Batch, new: Sequence[Waiting], failed: dict[int, Exception]) -> None:
        """Take what records that wait need over from the batch. Those that cannot be kept are added to `failed`."""
        if not new:
            return
        rows = np.array([waiting.row for waiting in new], np.int64)
        written = encode_columns(batch.take(rows))
        for at, (waiting, record) in enumerate(zip(new, bare_records(batch, rows), strict=True)):
            row, waiting.row = waiting.row, -1
            message = written.messages[at]
            if message is None or at in written.failed:
                failed[row] = written.failed[at]
                self._waiting.fail(waiting)
                continue
            waiting.payload = bytes(message)
            waiting.record = record

    def _alone(self, over: Sequence[Waiting]) -> Result:
        """The records that waited in vain, as the step says what becomes of them."""
        for waiting in over:
            self._waiting.remove(waiting)
        self._missing.add(len(over))
        self._tell()
        if self._step.missing == "drop" or not over:
            return timed({}, [])
        rows = [
            self._key_values(waiting) | {self._names[waiting.side]: Data.trusted(values)}
            for waiting, values in zip(over, _values_of(over), strict=True)
        ]
        result = timed(columns_of(rows), [waiting.record.context() for waiting in over], _bytes_of(over))
        if self._step.missing == "dead_letter":
            result.failed = {
                row: self._without_others(waiting) for row, waiting in zip(result.rows.tolist(), over, strict=True)
            }
        return result

    def _without_others(self, waiting: Waiting) -> DataError:
        others = [f"{name} ({topic})" for name, topic in self._step.topics.items() if name != self._names[waiting.side]]
        key = ", ".join(f"{name} {value!r}" for name, value in self._key_values(waiting).items())
        few = others[0] if len(others) == 1 else f"each of {', '.join(others)}"
        return DataError(f"there is no record of {few} with {key} within {self._step.within:g} s of it")

    def _key_values(self, waiting: Waiting) -> dict[str, Any]:
        value = plain(waiting.place[1])
        return dict(zip(self._step.by, value if len(self._step.by) > 1 else (value,), strict=True))

    def _written(self, waiting: Waiting) -> bytes:
        about = json.dumps([self._names[waiting.side], *saved_record(waiting.record.context())]).encode()
        return _VERSION + _HEAD.pack(waiting.time, waiting.over, len(about)) + about + waiting.payload

    def _read(self, lane: Hashable, item: Item) -> Waiting:
        if item.value[:1] != _VERSION:
            raise StreamerError(
                f"the saved records of the key {item.key[:60]} are of another version of streamer: use that version, "
                "or discard the state with `streamer state forget`"
            )
        try:
            time, over, length = _HEAD.unpack_from(item.value, 1)
            start = 1 + _HEAD.size
            side, *saved = json.loads(item.value[start : start + length])
            record = loaded_record(saved, lane)
            assert record.place is not None
            partition = record.place.source, record.place.partition
            place: Place = (self._partitions.setdefault(lane, partition), key_of(item.key))
            side = self._names.index(side)
        except (struct.error, ValueError, TypeError) as error:
            raise _damaged(item.key, error) from None
        payload = item.value[start + length :]
        return Waiting(place, lane, side, time, item.part, 0.0, record=record, payload=payload, over=over)

    def _tell(self) -> None:
        self._count.set(len(self._waiting))
        more = self._waiting.pushed_out - self._pushed_out.value
        if more:
            if not self._pushed_out.value:
                _log.warning(
                    '%s: there are more than %d records in a partition that wait ("most"), and those that wait longest '
                    "do so no longer",
                    self._name,
                    self._step.most,
                )
            self._pushed_out.add(more)


def _bytes_of(records: Iterable[Waiting]) -> int:
    """Those of the records that were kept; others are in memory until their batch is done with anyway."""
    return sum(len(waiting.payload) for waiting in records)


def _values_of(records: Sequence[Waiting]) -> list[dict[str, Any]]:
    """The values of records that were kept. Raises `StreamerError` if they are damaged."""
    read = decode_columns([waiting.payload for waiting in records])
    failed: dict[int, Exception] = dict(read.failed)
    values = Batch(read.columns, len(read.rows)).row_values(failed) if not failed else []
    if failed:
        at, error = next(iter(failed.items()))
        raise _damaged(text_of(records[at].place[1]), error)
    return values


def _damaged(key: str, error: Exception) -> StreamerError:
    return StreamerError(
        f"the saved records of the key {key[:60]} are damaged: {error}; discard them with `streamer state forget`"
    )
