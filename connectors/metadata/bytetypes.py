"""The types of record keys and headers, which are bytes on the bus: `long`, `uuid`, `text`, ..., read as columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from pipelines.data.columns import MISSING, Column, DenseColumn, Mask, ObjectColumn
from pipelines.data.spans import Spans
from pipelines.data.spanscolumn import SpansColumn
from pipelines.errors import WireError
from pipelines.values import ValueType
from pipelines.wire.stated.types import Stated

ByteType = Literal["long", "int", "double", "uuid", "text", "bytes", "integer", "number", "boolean"]
"""The types: `long`, `int` and `double` are numbers of 8, 4 and 8 bytes, big-endian, as Kafka's Java serializers write
them; `uuid` is a text like `123e4567-e89b-12d3-a456-426614174000`, or its 16 bytes; `text` is UTF-8. `integer`,
`number` and `boolean` are texts, by the rules of codecs' `types`."""

Entries = Sequence[bytes | None]
Failed = dict[int, WireError]


def read_bytes(entries: Entries, type: ByteType, what: str, failed: Failed) -> Column:
    """These N keys or headers as values of the type: INT64, DOUBLE, BOOLEAN, STRING or BYTES.

    Args:
        entries: `None` where a record has none: its row lacks the value.
        type: The type of all.
        what: Name of the entries for errors, such as `the key`.
        failed: Gets the error of each row whose bytes are not of the type; the row lacks the value.
    """
    return _READERS[type](entries, what, failed)


def _fixed(name: str, dtype: str, type: ValueType) -> Callable[[Entries, str, Failed], Column]:
    """The reader of numbers of this type of numpy; `name` is the type's name in service files."""
    size = np.dtype(dtype).itemsize

    def read(entries: Entries, what: str, failed: Failed) -> Column:
        spans = Spans.of(entries)
        good = spans.lengths == size
        numbers = np.zeros(len(spans), np.float64 if type is ValueType.DOUBLE else np.int64)
        numbers[good] = _matrix(spans, good, size).view(dtype)[:, 0]
        for row in np.flatnonzero(~good & ~spans.null).tolist():
            failed[row] = _misfit(what, spans[row], name, f"{size} bytes, the first one the highest")
        return DenseColumn(numbers, type, _present(good))

    return read


def _uuids(entries: Entries, what: str, failed: Failed) -> Column:
    """In lower case, so that equal ones are equal texts."""
    spans = Spans.of(entries)
    texts = np.zeros((len(spans), _UUID_TEXT), np.uint8)
    good = spans.lengths == _UUID_TEXT
    # Lower case differs from upper case in this bit, which digits and hyphens have anyway.
    letters = _matrix(spans, good, _UUID_TEXT)
    texts[good] = letters | 0x20
    good[good] = _UUID_BYTES[np.arange(_UUID_TEXT), letters].all(axis=1)
    raw = spans.lengths == _UUID_RAW
    texts[raw] = ord("-")
    texts[np.ix_(raw, _UUID_DIGITS)] = _HEX[_matrix(spans, raw, _UUID_RAW)].reshape(-1, 2 * _UUID_RAW)
    good |= raw
    for row in np.flatnonzero(~good & ~spans.null).tolist():
        failed[row] = _misfit(what, spans[row], "uuid", "36 characters like 123e4567-e89b-12d3-a456-426614174000")
    lengths = np.where(good, _UUID_TEXT, -1).astype(np.int64)
    read = Spans(texts.reshape(-1), np.arange(len(spans), dtype=np.int64) * _UUID_TEXT, lengths)
    return SpansColumn(read, ValueType.STRING, _present(good))


def _texts(entries: Entries, what: str, failed: Failed) -> Column:
    if isinstance(entries, Spans) and (column := SpansColumn.of_texts(entries)) is not None:
        return column
    values: list[Any] = []
    for row, entry in enumerate(entries):
        try:
            values.append(MISSING if entry is None else entry.decode())
        except UnicodeDecodeError:
            values.append(MISSING)
            failed[row] = _misfit(what, entry, "text", "UTF-8")
    return ObjectColumn(values, ValueType.STRING)


def _of_text(kind: Literal["integer", "number", "boolean"]) -> Callable[[Entries, str, Failed], Column]:
    """The reader of texts of this type."""

    def read(entries: Entries, what: str, failed: Failed) -> Column:
        stated = Stated(what, kind)
        values: list[Any] = []
        for row, text in enumerate(_texts(entries, what, failed).values()):
            value = None
            try:
                value = None if text is MISSING else stated.converted(text)
            except WireError as error:
                failed[row] = error
            values.append(MISSING if value is None else value)
        return Column.of(values)

    return read


def _bytes(entries: Entries, what: str, failed: Failed) -> Column:
    if isinstance(entries, Spans):
        return SpansColumn(entries, ValueType.BYTES, _present(~entries.null))
    return ObjectColumn([MISSING if entry is None else entry for entry in entries], ValueType.BYTES)


def _matrix(spans: Spans, rows: Mask, size: int) -> npt.NDArray[np.uint8]:
    """The bytes of these rows, which have `size` bytes each: `uint8 (n, size)`."""
    matrix: npt.NDArray[np.uint8] = spans.buffer[spans.starts[rows][:, None] + np.arange(size)]
    return matrix


def _present(there: Mask) -> Mask | None:
    return None if there.all() else there


def _misfit(what: str, entry: bytes | None, name: str, form: str) -> WireError:
    raw = entry or b""
    shown = repr(raw[:_SHOWN])[1:] + ("..." if len(raw) > _SHOWN else "")
    return WireError(f"{what} is no {name} ({form}): it has {len(raw)} bytes, {shown}")


_SHOWN: Final = 40
"""Bytes of an entry that an error shows."""
_UUID_TEXT: Final = 36
_UUID_RAW: Final = 16
_HYPHENS: Final = (8, 13, 18, 23)
_UUID_DIGITS: Final = [at for at in range(_UUID_TEXT) if at not in _HYPHENS]
_UUID_BYTES: Final = np.zeros((_UUID_TEXT, 256), np.bool_)
"""Which bytes may stand at each place of a uuid."""
_UUID_BYTES[np.ix_(_UUID_DIGITS, list(b"0123456789abcdefABCDEF"))] = True
_UUID_BYTES[_HYPHENS, ord("-")] = True
_HEX: Final = np.array([list(f"{byte:02x}".encode()) for byte in range(256)], np.uint8)
"""The two digits of each byte."""
_READERS: Final[Mapping[ByteType, Callable[[Entries, str, Failed], Column]]] = {
    "long": _fixed("long", ">i8", ValueType.INT64),
    "int": _fixed("int", ">i4", ValueType.INT64),
    "double": _fixed("double", ">f8", ValueType.DOUBLE),
    "uuid": _uuids,
    "text": _texts,
    "bytes": _bytes,
    "integer": _of_text("integer"),
    "number": _of_text("number"),
    "boolean": _of_text("boolean"),
}
