"""The newest dead letters of a topic."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from connectors.browser import TopicReader
from streamer.letters.stored import StoredLetter, letters_in

if TYPE_CHECKING:
    from connectors.records import Records

_WINDOW: Final = 3
"""How many offsets of each partition are read for a letter that is wanted: transactions leave some without records."""
_AT_ONCE: Final = 100
_MOST_BYTES: Final = 64 << 20


def newest(reader: TopicReader, count: int, deadline: float) -> tuple[list[StoredLetter], bool]:
    """The letters of the reader's topic that were written last, at most `count`, the newest first.

    Also whether all that had to be read was read by `deadline` (seconds on `time.monotonic`), and was not too large.
    """
    lows, ends = reader.range()
    starts = {number: max(lows[number], end - _WINDOW * count) for number, end in ends.items() if end > lows[number]}
    unread = set(starts)
    letters: list[StoredLetter] = []
    left = _MOST_BYTES
    reader.begin(starts)
    while unread:
        if time.monotonic() >= deadline or left <= 0:
            return letters, False
        records = reader.poll(0.2, _AT_ONCE)
        left -= records.byte_count
        letters = sorted([*letters, *_letters(records, ends)], key=_age)[:count]
        unread -= _finished(records, ends) | reader.ended
    return letters, True


def _letters(records: Records, ends: dict[int, int]) -> list[StoredLetter]:
    """The dead letters in a block, without those that were written after the topic was looked at."""
    stored = (letter for letter in letters_in(records) if letter is not None)
    return [letter for letter in stored if letter.offset < ends.get(letter.partition, 0)]


def _finished(records: Records, ends: dict[int, int]) -> set[int]:
    return {
        number
        for span, number in zip(records.spans, records.partitions, strict=True)
        if int(records.positions[span.stop - 1]) + 1 >= ends.get(number, 0)
    }


def _age(stored: StoredLetter) -> tuple[int, int]:
    return -stored.written, -stored.offset
