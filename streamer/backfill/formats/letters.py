"""Dead letters of the service itself: records that failed, read again from their topic or file."""

from __future__ import annotations

import time
from collections.abc import Generator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final

import numpy as np

from connectors.config import SourceConfig
from connectors.memory.block import block
from connectors.message import Message
from connectors.records import Lane, Records
from pipelines.arrow.library import pa
from pipelines.data.batch import Batch
from pipelines.data.columns import Column, DenseColumn
from pipelines.errors import DefinitionError, StepError, StreamerError
from pipelines.values import ValueType
from streamer.agent.decodedbatch import DecodedBatch
from streamer.backfill.formats.inputformat import ERROR, Block, Feed, InputFormat, Planned
from streamer.backfill.payloads import records_of
from streamer.backfill.pieces import Piece
from streamer.backfill.places import Place, StoredFile
from streamer.definition.service import Service
from streamer.letters.replayed import GROUP
from streamer.letters.route import letters_of
from streamer.letters.sources import source_of
from streamer.letters.stored import StoredLetter, letters_in

TOPIC: Final = "_topic"
PARTITION: Final = "_partition"
OFFSET: Final = "_offset"
_LETTER: Final = "_letter"
_PAYLOAD: Final = "_payload"
_STEM: Final = "letters"
_WAIT: Final = 0.5
_PATIENCE: Final = 60.0
"""Seconds without any record before the end, after which a bus counts as away."""
_FIELDS: Final = pa.schema(
    [
        (_LETTER, pa.int64()),
        (TOPIC, pa.string()),
        (PARTITION, pa.int64()),
        (OFFSET, pa.int64()),
        (_PAYLOAD, pa.binary()),
        (ERROR, pa.string()),
    ]
)

_ORIGINS: Final = MappingProxyType({name: _FIELDS.field(name).type for name in (TOPIC, PARTITION, OFFSET)})

Entry = tuple[int, StoredLetter | None, Any]
"""The offset of a record of the topic of letters, its letter, and its payload."""


class LettersBlock(Block):
    """Records of letters, decoded as they were by the source that has read them."""

    origins: ClassVar[Mapping[str, Any]] = _ORIGINS

    def __init__(self, decoded: DecodedBatch, entries: Sequence[Entry]) -> None:
        """`entries`: of each row of `decoded.records`."""
        self.batch = decoded.batch
        self.failed = decoded.failed
        self.rows = records_of(decoded)
        self._first = decoded.first
        self._entries = entries

    @property
    def origin(self) -> Batch:
        """Also where the records are from, by which results can be joined with them."""
        letters = [self._letter(number) for number in self.batch.rows.tolist()]
        return self.batch.with_columns(
            {
                TOPIC: Column.of([letter.topic for letter in letters]),
                PARTITION: _integers([letter.partition for letter in letters]),
                OFFSET: _integers([letter.offset for letter in letters]),
            }
        )

    def failures(self, failed: Mapping[int, Exception]) -> Any:
        """A `pyarrow.RecordBatch`: the letter's offset, the place and payload of its record, and `_error`.

        Of what is no dead letter there is no place.
        """
        rows = []
        for number in sorted(failed):
            offset, stored, payload = self._entries[number - self._first]
            place = (None, None, None) if stored is None else stored.letter[:3]
            rows.append((offset, *place, payload if isinstance(payload, bytes) else None, str(failed[number])))
        columns = zip(*rows, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _FIELDS, strict=True)]
        return pa.RecordBatch.from_arrays(arrays, schema=_FIELDS)

    def _letter(self, number: int) -> Any:
        stored = self._entries[number - self._first][1]
        assert stored is not None, "what is no letter is not decoded"
        return stored.letter


class Letters(InputFormat):
    """The topic or file of a service's dead letters. A piece is a run of offsets of a partition.

    Nothing of it is a file: `streamer.backfill.plans.deadletters` says which pieces there are.
    """

    name: ClassVar[str] = "letters"
    suffixes: ClassVar[tuple[str, ...]] = ()
    origins: ClassVar[Mapping[str, Any]] = _ORIGINS

    def planned(self, place: Place, files: Sequence[StoredFile]) -> Planned:
        return Planned([])

    def blocks(self, piece: Piece, feed: Feed) -> Generator[LettersBlock, None, None]:
        assert piece.part is not None, "letters are read from an offset to another"
        at, end = piece.part
        partition = partition_of(piece.files[0])
        topic, there = letters_of(feed.service)
        with there.reader(topic, GROUP) as reader:
            reader.begin({partition: at})
            heard = time.monotonic()
            while at < end and partition not in reader.ended:
                records = reader.poll(_WAIT, feed.rows)
                if len(records):
                    heard = time.monotonic()
                    at = int(records.positions[-1]) + 1
                    yield from _blocks(_entries(records, end), feed)
                elif time.monotonic() - heard > _PATIENCE:
                    raise StreamerError(f"{topic}[{partition}]@{at}: nothing comes in {_PATIENCE:g} s; try again")


def partition_file(topic: str, partition: int, topic_id: str) -> StoredFile:
    """A partition of letters as an input; a topic that was deleted and created again is another one."""
    return StoredFile(f"{topic}[{partition}]", f"{_STEM}-{partition}", 0, topic_id)


def partition_of(file: StoredFile) -> int:
    """The reverse of `partition_file`."""
    return int(file.relative.removeprefix(f"{_STEM}-"))


def decoding_of(source: SourceConfig) -> tuple[Any, ...]:
    """What of a source counts for the values of its records."""
    return source.codec_settings, source.into, source.where, source.time


def _entries(records: Records, end: int) -> list[Entry]:
    positions = records.positions.tolist()
    entries = zip(positions, letters_in(records), records.values, strict=True)
    return [entry for entry in entries if entry[0] < end]


def _blocks(entries: Sequence[Entry], feed: Feed) -> Generator[LettersBlock, None, None]:
    """Blocks of these letters, those of a source together."""
    sources: dict[str, SourceConfig | StepError] = {}
    groups: list[tuple[SourceConfig, list[Entry]]] = []
    faults: dict[int, StepError] = {}
    for entry in entries:
        fault = _fault(entry[1])
        config = feed.service.sources[0]
        if entry[1] is not None and fault is None:
            topic = entry[1].letter.topic
            if topic not in sources:
                sources[topic] = _source(feed.service, topic)
            known = sources[topic]
            if isinstance(known, StepError):
                fault = known
            else:
                config = known
        if fault is not None:
            faults[entry[0]] = fault
        group = next((group for source, group in groups if source is config), None)
        if group is None:
            groups.append((config, group := []))
        group.append(entry)
    for config, group in groups:
        yield from _decoded(config, group, faults, feed)


def _source(service: Service, topic: str) -> SourceConfig | StepError:
    try:
        return source_of(service, topic, decoding_of)
    except DefinitionError as error:
        return StepError(f"{Letters.name}: {error}", step=Letters.name)


def _decoded(
    config: SourceConfig, entries: Sequence[Entry], faults: Mapping[int, StepError], feed: Feed
) -> Generator[LettersBlock, None, None]:
    payloads = feed.decoder(config)
    lanes: dict[Lane, list[tuple[int, Message]]] = {}
    ordered: dict[Lane, list[Entry]] = {}
    for entry in entries:
        letter = None if entry[1] is None else entry[1].letter
        lane = Lane(payloads.source, str(-1 if letter is None else letter.partition), 0)
        message = Message(None) if entry[1] is None or entry[0] in faults else _message(entry[1])
        lanes.setdefault(lane, []).append((-1 if letter is None else letter.offset, message))
        ordered.setdefault(lane, []).append(entry)
    size = sum(len(payload) for _, _, payload in entries if isinstance(payload, bytes))
    records = block(payloads.source, "", lanes, size)
    in_order = [entry for each in ordered.values() for entry in each]
    records.faults = {row: faults[entry[0]] for row, entry in enumerate(in_order) if entry[0] in faults}
    for decoded in payloads.decoded(records):
        yield LettersBlock(decoded, in_order)


def _message(stored: StoredLetter) -> Message:
    letter = stored.letter
    return Message(
        stored.payload,
        stored.key,
        tuple(letter.headers),
        None if letter.timestamp < 0 else letter.timestamp,
        letter.partition,
        letter.topic,
        tuple(letter.record.items()),
    )


def _fault(stored: StoredLetter | None) -> StepError | None:
    """Why there is no record to run; `None`: there is one."""
    if stored is None:
        why = "it is no dead letter"
    elif stored.letter.left_out:
        why = f"it has no payload; the record is, as long as its topic keeps it, at {stored.letter.place}"
    elif stored.letter.is_window:
        why = f"it has the values of a window, whose last record is at {stored.letter.place}"
    elif stored.payload is None:
        why = "its record has no payload"
    else:
        return None
    return StepError(f"{Letters.name}: {why}", step=Letters.name)


def _integers(numbers: Sequence[int]) -> Column:
    return DenseColumn(np.array(numbers, np.int64), ValueType.INT64)
