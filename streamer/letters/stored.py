"""`StoredLetter`: a dead letter as it was read from its topic, and the name by which it is asked for."""

from __future__ import annotations

import re
import zlib
from typing import Any, Final, NamedTuple

from streamer.delivery.deadletter import Original
from streamer.letters.nosuchletter import NoSuchLetter

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
