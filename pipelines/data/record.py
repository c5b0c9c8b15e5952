"""`RecordContext`: topic, partition, offset, key and headers of the record that a `Data` came from.

`RecordPlaces` has most of it for many records, in columns.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RecordContext:
    """The record of a bus that a `Data` was decoded from. Never serialised."""

    source: str
    """Name of the source in the service, for example `kafka`."""
    topic: str
    """The topic, or for other buses its counterpart (an MQTT topic, a camera's name)."""
    partition: int = 0
    offset: int = 0
    """Position in the partition; grows, and may have gaps."""
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int | None = None
    """Milliseconds since 1970-01-01 UTC."""
    extras: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Properties that only records of this type of source have, by name, such as `qos` of MQTT; native values."""
    lane: Hashable = field(default=None, repr=False)
    """The sequence that positions count: one partition during one assignment, a session, one connection of a camera.

    State that belongs to a stream of records is kept by lane: `StatefulRunner.forget` is given the lanes that have
    ended. `None` where the record's source has none.
    """


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """What records of one topic and partition have in common; the fields are those of `RecordContext`."""

    source: str
    topic: str
    partition: int
    lane: Hashable


class RecordPlaces(NamedTuple):
    """Of N records what a result needs to know that is made of them later."""

    places: npt.NDArray[np.object_]
    """The different places, each a `RecordPlace`, or `None` for rows that have no record."""
    numbers: Rows
    """Which of `places` is that of each record, `int64 (N,)`."""
    offsets: Rows
    """`RecordContext.offset`, `int64 (N,)`."""
    keys: npt.NDArray[np.object_]
    """`RecordContext.key` of each record: bytes or `None`."""

    @property
    def lanes(self) -> list[Hashable]:
        """The lane of each record; `None` where there is none."""
        return self._each([None if place is None else place.lane for place in self.places.tolist()])

    @property
    def topics(self) -> list[str | None]:
        """The topic of each record; `None` where there is no record."""
        return self._each([None if place is None else place.topic for place in self.places.tolist()])

    def _each(self, values: list[Any]) -> list[Any]:
        """The values of places, for each record."""
        return values * len(self.numbers) if len(values) == 1 else [values[number] for number in self.numbers.tolist()]


def listed_places(records: Iterable[RecordContext | None]) -> RecordPlaces:
    """What `RecordPlaces` has, of records that are there one by one."""
    numbers: dict[RecordPlace | None, int] = {}
    at, offsets, keys = [], [], []
    for record in records:
        place = None
        if record is not None:
            place = RecordPlace(record.source, record.topic, record.partition, record.lane)
        at.append(numbers.setdefault(place, len(numbers)))
        offsets.append(0 if record is None else record.offset)
        keys.append(None if record is None else record.key)
    return RecordPlaces(objects(list(numbers)), np.array(at, np.int64), np.array(offsets, np.int64), objects(keys))


def objects(values: list[Any]) -> npt.NDArray[np.object_]:
    """An array of these objects."""
    array = np.empty(len(values), object)
    array[:] = values
    return array
