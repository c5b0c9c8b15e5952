"""Dead letters: records that failed, as they came, with headers that say what happened and where they belong.

Original payload, key and headers are kept byte for byte. Ours are added in front, their names begin with
`streamer-`; `original` takes them off again, for `streamer replay`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from connectors.blockcolumns import taken
from connectors.headers import Headers
from connectors.records import Header, Messages, Records
from pipelines.errors import StepError

PREFIX = "streamer-"
NAMES = ("service", "topic", "partition", "offset", "timestamp", "step", "error", "text", "time")
"""Our headers, without the prefix, in the order in which they stand."""
_OURS = [f"{PREFIX}{name}".encode() for name in NAMES]
MAX_TEXT = 2000
"""Characters of an error's text that a header carries."""


class Original(NamedTuple):
    """Where a dead letter came from, and its own headers. Times are milliseconds since 1970, -1: unknown."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    step: str
    error: str
    text: str
    headers: list[Header]


def dead_letters(records: Records, first: int, failed: Mapping[int, Exception], service: str) -> Messages:
    """One message for each failed row of `records` (row numbers start at `first`), in row order."""
    rows = np.array(sorted(failed), np.int64)
    index = rows - first
    headers = records.header_column()
    own = None if headers is None else taken(headers, index)
    sender, made = service.encode(), b"%d" % int(time.time() * 1000)
    topics = [topic.encode() for topic in records.topics]
    partitions = [b"%d" % partition for partition in records.partitions]
    spans = np.searchsorted([span.stop for span in records.spans], index, side="right").tolist()
    positions, stamps = records.positions[index].tolist(), records.timestamp_column()[index].tolist()
    # As columns from the start: a list of pairs for each letter would only be taken apart again.
    names: list[bytes] = []
    values: list[bytes | None] = []
    ends: list[int] = []
    for at, (row, span) in enumerate(zip(rows.tolist(), spans, strict=True)):
        step, error, text = described(failed[row])
        names += _OURS
        values += (
            sender,
            topics[span],
            partitions[span],
            b"%d" % positions[at],
            b"%d" % stamps[at],
            step.encode(),
            error.encode(),
            text[:MAX_TEXT].encode("utf-8", "replace"),
            made,
        )
        for name, value in (own[at] or ()) if own is not None else ():
            names.append(name.encode())
            values.append(value)
        ends.append(len(names))
    return Messages(
        rows=rows,
        values=taken(records.values, index),
        keys=None if records.keys is None else taken(records.keys, index),
        headers=Headers.flat(names, values, ends),
    )


def described(error: Exception) -> tuple[str, str, str]:
    """Step, class and text of a failure; the class is that of the cause where a step wrapped it."""
    step = error.step if isinstance(error, StepError) else None
    cause = error.__cause__ if isinstance(error, StepError) and error.__cause__ is not None else error
    return step or "", type(cause).__name__, str(cause)


def original(headers: Sequence[Header] | None) -> Original | None:
    """What the headers of a dead letter say; `None` if they are not those of one."""
    ours: dict[str, bytes] = {}
    own: list[Header] = []
    for name, value in headers or ():
        # Ours stand in front. A second one of a name came with the record: a dead letter that died again, or a
        # stranger's attempt to have it replayed elsewhere.
        if name.removeprefix(PREFIX) in NAMES and name.startswith(PREFIX) and name not in ours:
            ours[name] = value or b""
        else:
            own.append((name, value))
    if "streamer-topic" not in ours or "streamer-step" not in ours:
        return None

    def text(name: str) -> str:
        return ours.get(name, b"").decode("utf-8", "replace")

    def number(name: str) -> int:
        try:
            return int(text(name))
        except ValueError:
            return -1

    return Original(
        topic=text("streamer-topic"),
        partition=number("streamer-partition"),
        offset=number("streamer-offset"),
        timestamp=number("streamer-timestamp"),
        step=text("streamer-step"),
        error=text("streamer-error"),
        text=text("streamer-text"),
        headers=own,
    )
