"""Plain JSON: many records to columns and back, in plain Python.

Only values that are asked for are decoded: a record's other values stay the text that they came as, and go out as that.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeGuard, overload

import msgspec
import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import Column, DenseColumn, Rows
from pipelines.data.entries import PackedEntries
from pipelines.data.sparsecolumn import SparseColumn, by_key, in_form
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import DataError, MissingPackageError, RowsFailed, WireError, without_traceback
from pipelines.values.oddvalue import OddValue
from pipelines.wire.jsonrecords import JsonOptions, payload_records, usual_records
from pipelines.wire.jsontext import (
    REFUSED,
    Text,
    parsed,
    quickly_parsed,
    text_of,
)
from pipelines.wire.limits import DEFAULT_LIMITS, Limits
from pipelines.wire.owndigits import in_own_digits
from pipelines.wire.plainvalues import (
    PlainForm,
    PlainRules,
    note_unreadable,
    read_column,
    unwritten,
)
from pipelines.wire.stated.conversions import BLANKS
from pipelines.wire.stated.types import Decoders, Stated, gives_images

NaN: TypeAlias = Literal["null", "error"]
"""How NaN and infinite numbers, which JSON lacks, are written: as null, or not at all, and the record fails."""


class ReadJson(NamedTuple):
    """The result of reading N payloads."""

    columns: dict[str, Column]
    """Key to its column, which has a row for each of `rows`."""
    rows: Rows
    """Positions of the payloads that the rows came from, `int64`, never falling: one for each, or several (`each`)."""
    failed: dict[int, WireError]
    """Position to the error of a payload that cannot be read. A tombstone (`None`) is neither here nor in `rows`."""


def read_json(
    values: Sequence[Any],
    wanted: frozenset[str],
    options: JsonOptions,
    decoders: Mapping[str, JsonDecoder] | None = None,
) -> ReadJson:
    """The columns of many payloads: bytes, or `None` for a tombstone, which is passed over.

    Keys that are `wanted` are decoded and checked. All others stay as they came (`WireColumn`, with the decoder of
    their key): errors in them show only when they are read. A payload fails if it is no JSON object, exceeds limits,
    or has a value under a wanted key that no `Data` can hold; with `each`, it fails with all its rows.
    """
    if decoders is None:
        decoders = Decoders(partial(JsonDecoder, options.limits), options.stated)
    usual = usual_records(values, options)
    if usual is not None:
        columns, wrong = _columns(usual, wanted, decoders, complete=True)
        if not wrong:
            return ReadJson(columns, np.arange(len(usual), dtype=np.int64), {})
    records: list[dict[str, Text | None]] = []
    rows: list[int] = []
    failed: dict[int, WireError] = {}
    for position, payload in enumerate(values):
        if payload is None:
            continue
        try:
            read = payload_records(text_of(payload, options.limits), options)
        except WireError as error:
            failed[position] = without_traceback(error)
        else:
            records += read
            rows += [position] * len(read)
    columns, wrong = _columns(records, wanted, decoders)
    if wrong:
        for row, reason in wrong.items():
            failed.setdefault(rows[row], reason)
        kept = [row for row, position in enumerate(rows) if position not in failed]
        rows = [rows[row] for row in kept]
        # Values of the rows that failed are to leave no trace in the form of a column.
        columns, _ = _columns([records[row] for row in kept], wanted, decoders)
    return ReadJson(columns, np.array(rows, np.int64), failed)


@dataclass(frozen=True, slots=True)
class JsonDecoder:
    """Decodes a `WireColumn` whose entries are texts of JSON values. Decoders of equal limits and type are equal."""

    limits: Limits = DEFAULT_LIMITS
    stated: Stated | None = None
    """The type that the values are to be of."""

    @property
    def converts(self) -> bool:
        """Whether a type is stated (`Column.converts`)."""
        return self.stated is not None

    @property
    def may_give_images(self) -> bool:
        """Whether the type that is stated is that of images."""
        return gives_images(self.stated)

    def __call__(self, entries: Sequence[Any]) -> Column:
        """The column of these texts. Raises `RowsFailed` naming the rows whose text is no value."""
        column, failed = self.read(entries)
        if failed:
            raise RowsFailed(failed)
        return column

    def plain(self, entry: Text) -> Any:
        """The value of this text, which no `Data` can hold, as Python's `json` gives it.

        Raises `WireError` if a type is stated, of which it is not.
        """
        if self.stated is not None:
            for error in self.read([entry])[1].values():
                raise error
        return parsed(entry)

    def read(self, entries: Sequence[Any]) -> tuple[Column, dict[int, WireError]]:
        """The column of these texts, in plain Python, and the errors of those that are no value by position."""
        texts = [b"null" if entry is None else entry for entry in entries]
        finite = False
        try:
            values = quickly_parsed(b"[" + b",".join(texts) + b"]")
        except REFUSED:
            # Only such numbers may be beyond the largest.
            values, finite = [parsed(text) for text in texts], True
        if self.stated is not None and self.stated.kind == "text":
            # A number with all the digits that it came with.
            values = [
                bytes(text).decode().strip(BLANKS) if type(value) in (int, float) else value
                for text, value in zip(texts, values, strict=True)
            ]
        return read_column(values, PlainRules(self.limits, finite, self.stated))


@dataclass(frozen=True, slots=True)
class JsonForm:
    """How rows are written."""

    nan: NaN = "null"
    pretty: bool = False


class WrittenJson(NamedTuple):
    """The result of writing N rows."""

    texts: Sequence[bytes | None]
    """The object of each row; `None` for a row that is in `failed`."""
    failed: dict[int, Exception]
    """Position to the error of a row that cannot be written."""


def write_json(batch: Batch, form: JsonForm) -> WrittenJson:
    """One JSON object for each row, in the order of the batch's keys, rare ones last, without metadata.

    Values that were not read are the text that came in. Arrays are (nested) lists of numbers with the fewest digits
    that give them back, bytes base64, an image `{"format": "png", "base64": ...}`; see `PlainForm`.
    """
    batch, writer = in_own_digits(batch), JsonWriter(form)
    failed: dict[int, Exception] = {}
    common, rare = batch.common_and_rare()
    prefixes: list[bytes] = []
    columns: list[Sequence[Text | None]] = []
    for key, column in common.items():
        prefix = writer.prefix(key, column, failed)
        if prefix is not None:
            prefixes.append(prefix)
            columns.append(writer.texts(key, column, failed))
    last = writer.rare_members(rare, failed)
    begin, between, end = (b"{\n  ", b",\n  ", b"\n}") if form.pretty else (b"{", b",", b"}")
    objects: list[bytes | None] = []
    # Row by row: the parts of an object are joined while they are in the processor's cache.
    for row, texts in enumerate(zip(*columns, strict=True) if columns else [()] * batch.size):
        members = [prefix + text for prefix, text in zip(prefixes, texts, strict=True) if text is not None]
        members += last.get(row, ())
        objects.append(begin + between.join(members) + end if members else b"{}")
    for row in failed:
        objects[row] = None
    return WrittenJson(objects, failed)


class JsonWriter:
    """Writes the values of columns, one by one."""

    def __init__(self, form: JsonForm) -> None:
        self._null = form.nan == "null"
        self._pretty = form.pretty
        self._text = (_PRETTY if form.pretty else _COMPACT).encode

    def prefix(self, key: str, column: Column, failed: dict[int, Exception]) -> bytes | None:
        """The text before each value of the key; `None` if the key cannot be written: the rows that have it fail."""
        try:
            return f"{self._text(key)}:{' ' if self._pretty else ''}".encode()
        except UnicodeEncodeError as error:
            wrong = WireError(f"a key cannot be written: {error}")
            failed.update((row, wrong) for row in column.positions())
            return None

    def rare_members(self, columns: Mapping[str, SparseColumn], failed: dict[int, Exception]) -> dict[int, list[bytes]]:
        """Keys and values of these columns, by row."""
        members: dict[int, list[bytes]] = {}
        for key, column in columns.items():
            prefix = self.prefix(key, column, failed)
            if prefix is None:
                continue
            inner = column.column
            cells: Iterable[tuple[int, Text | None]] = (
                zip(column.rows, inner.entries, strict=True)
                if _is_undecoded(inner)
                else self._cells(key, column, failed)
            )
            for row, text in cells:
                if text is not None:
                    members.setdefault(row, []).append(prefix + text)
        return members

    def texts(self, key: str, column: Column, failed: dict[int, Exception]) -> Sequence[Text | None]:
        """The text of each value; `None` for a row that lacks it, or is in `failed`."""
        if _is_undecoded(column):
            return column.entries
        texts: list[Text | None] = [None] * len(column)
        for row, text in self._cells(key, column, failed):
            texts[row] = text
        return texts

    def _cells(self, key: str, column: Column, failed: dict[int, Exception]) -> Iterator[tuple[int, bytes]]:
        """Position and text of each row that has the key, of decoded values."""
        if not self._pretty and _has_finite_numbers(column):
            # Both write as `json` does, and sooner.
            rows = zip(_FORM.array(column.storage), _without_exponent(column.storage), strict=True)
            for row, (numbers, is_short) in enumerate(rows):
                yield row, _written(numbers) if is_short else repr(numbers).replace(" ", "").encode()
            return
        for row, value in column.all_cells():
            if isinstance(value, OddValue) and isinstance(value.decoder, JsonDecoder):
                yield row, value.entry
                continue
            try:
                text = self._value(_FORM.value(value))
                # Line breaks of strings are escaped: these are between tokens.
                written = (text.replace("\n", "\n  ") if self._pretty else text).encode()
            except MissingPackageError:
                raise
            except UnicodeEncodeError as error:
                failed[row] = WireError(f"half of a surrogate pair at character {error.start} is no text")
            except (DataError, WireError, ValueError, TypeError) as error:
                failed.setdefault(row, unwritten(key, value, error))
            else:
                yield row, written

    def _value(self, plain: Any) -> str:
        try:
            return self._text(plain)
        except ValueError:
            # NaN or infinite, somewhere inside.
            if not self._null:
                raise WireError(
                    "it holds NaN or an infinite number, which JSON has not (nan: null writes null)"
                ) from None
            return self._text(_without_nan(plain))


def _is_undecoded(column: Column) -> TypeGuard[WireColumn]:
    """Whether its entries are the texts of its values."""
    return isinstance(column, WireColumn) and isinstance(column.decoder, JsonDecoder)


def _has_finite_numbers(column: Column) -> TypeGuard[DenseColumn]:
    """Whether all rows have numbers, or arrays of numbers, none of which is NaN or infinite."""
    if not isinstance(column, DenseColumn) or column.mask is not None or column.storage.dtype.kind not in "iuf":
        return False
    return bool(np.isfinite(column.storage).all())


def _without_exponent(array: Any) -> list[bool]:
    """Whether each row's finite numbers are such that Python and msgspec write them alike, without an exponent."""
    if array.dtype.kind != "f":
        return [True] * len(array)
    sizes = np.abs(array.astype(np.float64))
    alike: list[bool] = ((sizes == 0) | (sizes >= 1e-3) & (sizes < 1e15)).reshape(len(array), -1).all(1).tolist()
    return alike


class Members(PackedEntries[Text]):
    """The texts of a key in records that all have it, looked up when they are asked for."""

    __slots__ = ("_key", "_records")

    def __init__(self, records: list[dict[str, Text]], key: str) -> None:
        self._records = records
        self._key = key

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, row: int) -> Text: ...
    @overload
    def __getitem__(self, row: slice) -> Members: ...
    def __getitem__(self, row: int | slice) -> Text | Members:
        if isinstance(row, slice):
            return Members(self._records[row], self._key)
        return self._records[row][self._key]

    def __iter__(self) -> Iterator[Text]:
        return map(itemgetter(self._key), self._records)

    def take(self, rows: Rows) -> Members:
        """The texts of these rows."""
        return Members([self._records[row] for row in rows.tolist()], self._key)


def _columns(
    records: list[dict[str, Any]],
    wanted: frozenset[str],
    decoders: Mapping[str, JsonDecoder],
    *,
    complete: bool = False,
) -> tuple[dict[str, Column], dict[int, WireError]]:
    """The columns of these rows, and the errors of rows by position. `complete`: no value is `None`."""
    columns: dict[str, Column] = {}
    failed: dict[int, WireError] = {}
    cells: Iterable[tuple[str, list[int] | None, Any]] = by_key(records, None)
    if complete and len(set(map(tuple, records))) == 1:
        # Of most records few values are asked for: the others are not even put into lists.
        cells = ((key, None, Members(records, key)) for key in records[0])
    for key, rows, texts in cells:
        if key in wanted and _is_text(key):
            columns[key], errors = decoders[key].read(
                texts if rows is None else [record.get(key) for record in records]
            )
            for row, error in errors.items():
                note_unreadable(failed, row, key, error)
            continue
        if rows is not None:
            there = [(row, text) for row, text in zip(rows, texts, strict=True) if text is not None]
            inner = WireColumn([text for _, text in there], decoders[key])
            columns[key] = SparseColumn(len(records), [row for row, _ in there], inner)
        else:
            columns[key] = WireColumn(texts, decoders[key])
        if not _is_text(key):
            wrong = WireError("a key is no text: it holds half of a surrogate pair")
            failed.update((row, wrong) for row in columns[key].positions())
    # Nulls gave their keys a place, but do not make them less rare.
    return in_form({key: column for key, column in columns.items() if not column.empty}, len(records), wanted), failed


def _is_text(key: str) -> bool:
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def _without_nan(plain: Any) -> Any:
    if plain.__class__ is float:
        return None if plain - plain != 0.0 else plain
    if plain.__class__ is list:
        return [_without_nan(element) for element in plain]
    if plain.__class__ is dict:
        return {key: _without_nan(element) for key, element in plain.items()}
    return plain


_FORM: Final = PlainForm()
_written: Final = msgspec.json.Encoder().encode
_COMPACT: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_PRETTY: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=2)
