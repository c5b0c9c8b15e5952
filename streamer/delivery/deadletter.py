"""Dead letters: records that failed, as they came, with headers that hold the error and the record's position.

Original payload, key and headers are kept byte for byte. Our own headers stand in front of them, their names begin with
`streamer-`; `original` separates them again, for `streamer replay`.

Of a record that completed a window, and of one that time has closed, what failed is the window: the letter has that
as JSON in place of the record's payload, and a header `streamer-window`. No topic of records takes such a payload.

If a sink refuses a letter (it is too large, or no line of text), the letter is sent without its payload, and if need be
without its key and headers too. Its headers then name the parts that are left out, with size and SHA-256 of the
payload; as some sinks have no headers, its payload is a JSON document of them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from connectors.blockcolumns import take_rows
from connectors.headers import Headers
from connectors.records import Header, Messages, Records
from pipelines.data.data import Data
from pipelines.data.result import Gathered
from pipelines.errors import StepError

PREFIX = "streamer-"
NAMES = ("service", "topic", "partition", "offset", "timestamp", "step", "error", "text", "time")
"""Our headers, without the prefix, in the order in which they stand."""
RECORD_NAME = "record"
"""The header before them with `Records.extras` of the record: a JSON object, bytes as `{"base64": TEXT}`."""
WINDOW_NAME = "window"
"""The header before them of a letter whose payload is what a step had gathered, as JSON, and no record."""
SHORT_NAMES = ("left-out", "size", "sha256", "refusal")
"""The further headers of a letter without its payload, which stand before all others."""
_OURS = [f"{PREFIX}{name}".encode() for name in NAMES]
_SHORT = [f"{PREFIX}{name}".encode() for name in SHORT_NAMES]
_RECORD = f"{PREFIX}{RECORD_NAME}"
_NAMES = frozenset(f"{PREFIX}{name}" for name in NAMES)
_WINDOW = f"{PREFIX}{WINDOW_NAME}"
_FRONT_NAMES = frozenset(f"{PREFIX}{name}" for name in (*SHORT_NAMES, WINDOW_NAME, RECORD_NAME))
MAX_TEXT = 2000
"""Characters of an error's text that a header carries."""
SHORT_TEXT = 200
"""Characters of each text in a letter without key and headers, so that it fits any sink."""


class Letter(NamedTuple):
    """The failure that a dead letter reports, and how much of the record it carries."""

    step: str
    error: str
    text: str
    refusals: tuple[str, ...] = ()
    """Why the sink refused longer letters: after one refusal it has no payload, after two no key and headers."""
    window: bytes | None = None
    """What a step had gathered when the record came, as JSON: its payload. `None`: it is that of the record."""

    @classmethod
    def of(cls, error: Exception, window: bytes | None = None) -> Letter:
        """The letter of a record that failed with `error`, or of such a `window`."""
        step, kind, text = described(error)
        return cls(step, kind, text[:MAX_TEXT], window=window)

    @property
    def is_bare(self) -> bool:
        """Whether it carries no part of the record."""
        return len(self.refusals) > 1

    def shorter(self, refusal: str) -> Letter | None:
        """The letter to send instead, after the sink refused this one; `None` if there is no shorter one."""
        if self.is_bare:
            return None
        refusals = (*self.refusals, refusal[:SHORT_TEXT])
        if not self.refusals:
            return self._replace(refusals=refusals)
        return Letter(self.step[:SHORT_TEXT], self.error[:SHORT_TEXT], self.text[:SHORT_TEXT], refusals, self.window)


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
    left_out: str = ""
    """The parts of the record that the letter lacks, as in "payload, key, headers"; empty: it is whole."""
    size: int = -1
    """Bytes of the payload that was left out; -1: the record had none."""
    sha256: str = ""
    """SHA-256 of that payload, in hexadecimal digits."""
    refusal: str = ""
    """Why it was left out."""
    record: Mapping[str, Any] = MappingProxyType({})
    """Metadata that only this kind of source has, by name, such as `qos` of MQTT (`Records.extras`)."""
    is_window: bool = False
    """Whether it has what a step had gathered, and no record; the position is that of the last record in it."""

    @property
    def place(self) -> str:
        """Topic, partition and offset of the record, `fans[0]@7`."""
        return f"{self.topic}[{self.partition}]@{self.offset}"


def dead_letters(records: Records, first: int, letters: Mapping[int, Letter], service: str) -> Messages:
    """One message for each of these rows of `records` (row numbers start at `first`), in row order."""
    rows = np.array(sorted(letters), np.int64)
    index = rows - first
    headers = records.header_column()
    headers_of_row = None if headers is None else take_rows(headers, index)
    unwritten: dict[int, Exception] = {}
    payloads = records.payloads(index, unwritten)
    keys = None if records.keys is None else take_rows(records.keys, index)
    sender, made = service.encode(), b"%d" % int(time.time() * 1000)
    topics = [topic.encode() for topic in records.topics_of(index)]
    partitions = [b"%d" % partition for partition in records.partitions]
    spans = np.searchsorted([span.stop for span in records.spans], index, side="right").tolist()
    positions, stamps = records.positions[index].tolist(), records.timestamp_column()[index].tolist()
    # `Headers` needs columns: a list of pairs for each letter would have to be split up again.
    names: list[bytes] = []
    values: list[bytes | None] = []
    ends: list[int] = []
    documents = {at: window for at, row in enumerate(rows.tolist()) if (window := letters[row].window) is not None}
    places: dict[int, bytes] = {}
    for at, (row, span) in enumerate(zip(rows.tolist(), spans, strict=True)):
        letter = letters[row]
        if at in unwritten and letter.window is None and not letter.refusals:
            letter = letter.shorter(f"its payload cannot be written: {unwritten[at]}") or letter
        facts = (
            sender,
            topics[at],
            partitions[span],
            b"%d" % positions[at],
            b"%d" % stamps[at],
            letter.step.encode("utf-8", "replace"),
            letter.error.encode("utf-8", "replace"),
            letter.text.encode("utf-8", "replace"),
            made,
        )
        if letter.refusals:
            left_out = _left_out(letter, payloads[at] if letter.window is None else letter.window)
            names += _SHORT
            values += left_out
            documents[at] = _document((*_SHORT, *_OURS), (*left_out, *facts))
        if letter.window is not None:
            names.append(_WINDOW.encode())
            values.append(b"json")
        if records.extras and not letter.is_bare:
            names.append(_RECORD.encode())
            values.append(_json(records.extras_of(int(index[at]))))
        names += _OURS
        values += facts
        if letter.is_bare:
            places[at] = b"-".join(facts[1:4])
        elif headers_of_row is not None:
            for name, value in headers_of_row[at] or ():
                names.append(name.encode())
                values.append(value)
        ends.append(len(names))
    return Messages(
        rows=rows,
        values=_replaced(payloads, documents),
        # Its position as its key: some sinks refuse messages without a key.
        keys=_replaced([None] * len(rows) if keys is None else keys, places) if places else keys,
        headers=Headers.flat(names, values, ends),
        positions=records.positions[index],
    )


def gathered_json(gathered: Sequence[Gathered], row: int) -> bytes | None:
    """What the last step that gathered anything for the row with this number made of it; `None`: no step did.

    The JSON form of the window (`Data.to_json`), or a list of these, if the record completed several. Raises
    `WireError` if JSON cannot carry a value.
    """
    for batch, _ in reversed(gathered):
        at = np.flatnonzero(batch.rows == row)
        if batch.splits is not None:
            at = np.searchsorted(batch.splits, at, side="right") - 1
        if len(at):
            windows = [Data.to_json(batch.row(position)) for position in at.tolist()]
            return (windows[0] if len(windows) == 1 else f"[{', '.join(windows)}]").encode()
    return None


def _left_out(letter: Letter, payload: Any) -> tuple[bytes, ...]:
    content = payload if isinstance(payload, (bytes, bytearray, memoryview)) else None
    return (
        b"payload, key, headers" if letter.is_bare else b"payload",
        b"%d" % (-1 if content is None else len(content)),
        b"" if content is None else hashlib.sha256(content).hexdigest().encode(),
        "; then: ".join(letter.refusals).encode("utf-8", "replace"),
    )


def _json(extras: Mapping[str, Any]) -> bytes:
    return json.dumps(extras, ensure_ascii=False, default=_plain).encode("utf-8", "replace")


def _plain(value: Any) -> Any:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"base64": base64.b64encode(value).decode()}
    return str(value)


def _extras(document: bytes) -> dict[str, Any]:
    """The extras that `_json` wrote; none if the document is another, as any client may have written the letter."""
    try:
        parsed = json.loads(document)
        return {name: _value(value) for name, value in parsed.items()} if isinstance(parsed, dict) else {}
    except (ValueError, RecursionError):
        return {}


def _value(value: Any) -> Any:
    if isinstance(value, dict) and value.keys() == {"base64"} and isinstance(value["base64"], str):
        return base64.b64decode(value["base64"])
    return value


def _document(names: Sequence[bytes], values: Sequence[bytes]) -> bytes:
    pairs = zip(names, values, strict=True)
    return json.dumps({name.decode(): value.decode() for name, value in pairs}, ensure_ascii=False).encode()


def _replaced(column: Sequence[Any], instead: Mapping[int, bytes]) -> Sequence[Any]:
    return [instead.get(at, entry) for at, entry in enumerate(column)] if instead else column


def described(error: Exception) -> tuple[str, str, str]:
    """Step, class and text of a failure; the class is that of the cause where a step wrapped it."""
    step = error.step if isinstance(error, StepError) else None
    cause = error.__cause__ if isinstance(error, StepError) and error.__cause__ is not None else error
    return step or "", type(cause).__name__, str(cause)


def original(headers: Sequence[Header] | None) -> Original | None:
    """The origin that the headers of a dead letter give; `None` if they are not those of a dead letter."""
    ours: dict[str, bytes] = {}
    others: list[Header] = []
    for name, value in headers or ():
        # Ours stand in front. A second header of a name came with the record: it was a dead letter that failed again,
        # or its producer tries to have it replayed to another topic, or not at all.
        if name not in ours and (name in _NAMES or (name in _FRONT_NAMES and ours.keys() <= _FRONT_NAMES)):
            ours[name] = value or b""
        else:
            others.append((name, value))
    if "streamer-topic" not in ours or "streamer-step" not in ours:
        return None

    def text(name: str) -> str:
        return ours.get(name, b"").decode("utf-8", "replace")

    def number(name: str) -> int:
        try:
            value = int(text(name))
        except ValueError:
            return -1
        # Any client may have written the letter; what reads it has 64 bits.
        return value if value.bit_length() < 64 else -1

    return Original(
        topic=text("streamer-topic"),
        partition=number("streamer-partition"),
        offset=number("streamer-offset"),
        timestamp=number("streamer-timestamp"),
        step=text("streamer-step"),
        error=text("streamer-error"),
        text=text("streamer-text"),
        headers=others,
        left_out=text("streamer-left-out"),
        size=number("streamer-size"),
        sha256=text("streamer-sha256"),
        refusal=text("streamer-refusal"),
        record=_extras(ours.get(_RECORD, b"{}")),
        is_window=_WINDOW in ours,
    )
