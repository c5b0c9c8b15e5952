"""`StoredLetter`: a dead letter as it was read from its topic, and the name by which it is asked for."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streamer.delivery.deadletter import Original, original
from streamer.letters.nosuchletter import NoSuchLetter

if TYPE_CHECKING:
    from connectors.records import Records

_NAME: Final = re.compile(r"(\d{1,6})-(\d{1,19})-([0-9a-f]{8})")


class StoredLetter(NamedTuple):
    """A dead letter, and its place in the topic of dead letters."""

    partition: int
    offset: int
    written: int
    """When it was written, in milliseconds since 1970; -1: unknown."""
    payload: Any
    """The payload of its record."""
    key: bytes | None
    letter: Original

    @property
    def name(self) -> str:
        """Names it for good: where its topic is deleted and created again, another letter gets another name."""
        return f"{self.partition}-{self.offset}-{fingerprint(self.letter, self.written)}"


def letters_in(records: Records) -> Iterator[StoredLetter | None]:
    """The dead letter in each row of a block of a topic of dead letters; `None` where there is none."""
    headers = records.header_column() or [None] * len(records)
    stamps = records.timestamp_column()
    for span, number in zip(records.spans, records.partitions, strict=True):
        for row in range(span.start, span.stop):
            letter = original(headers[row])
            if letter is None:
                yield None
                continue
            key = None if records.keys is None else records.keys[row]
            yield StoredLetter(number, int(records.positions[row]), int(stamps[row]), records.values[row], key, letter)


def fingerprint(letter: Original, written: int) -> str:
    """Eight hexadecimal digits that tell a letter, written at this time, from others that come to be in its place."""
    origin = f"{letter.topic}\n{letter.partition}\n{letter.offset}\n{letter.step}\n{written}"
    return f"{zlib.crc32(origin.encode('utf-8', 'replace')):08x}"


def parsed(name: str) -> tuple[int, int, str]:
    """The partition, the offset and the fingerprint in the name of a letter. Raises `NoSuchLetter`."""
    match = _NAME.fullmatch(name)
    if match is None:
        raise NoSuchLetter(f'"{name[:100]}" is no id of a dead letter; take one that the list of letters has')
    return int(match[1]), int(match[2]), match[3]
