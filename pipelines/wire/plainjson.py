"""Plain JSON: many records to columns and back, in plain Python.

Only values that are asked for are decoded: a record's other values stay the text that they came as, and go out as that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec
import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import Column, DenseColumn, Mask, ObjectColumn, Rows
from pipelines.data.numberscolumn import NumbersColumn
from pipelines.data.spans import Spans
from pipelines.data.sparsecolumn import SparseColumn, by_key
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import DataError, MissingPackageError, RowsFailed, WireError, without_traceback
from pipelines.hotpath import choose
from pipelines.values import ValueType
from pipelines.values.oddvalue import OddValue
from pipelines.wire.hints import encoded_twice
from pipelines.wire.jsondocuments import Documents, Undecoded, alike
from pipelines.wire.jsontext import REFUSED, Pointer, check_size, documents, parsed, quickly_parsed, text_of
from pipelines.wire.limits import DEFAULT_LIMITS, Limits
from pipelines.wire.owndigits import in_own_digits
from pipelines.wire.plainvalues import PlainForm, PlainRules, note_unreadable, read_column, unwritten

NaN: TypeAlias = Literal["null", "error"]
"""How NaN and infinite numbers, which JSON lacks, are written: as null, or not at all, and the record fails."""


@dataclass(frozen=True, slots=True)
class JsonOptions:
    """How records are read."""

    limits: Limits = DEFAULT_LIMITS
    fields: tuple[tuple[str, Pointer], ...] = ()
    """Keys, each with the place of its value inside of the record. They hide keys of the record with the same name."""
    each: bool = False
    """Whether every element of an array, or every line, is a row."""


class ReadJson(NamedTuple):
    """The result of reading N payloads."""

    columns: dict[str, Column]
    """Key to its column, which has a row for each of `rows`."""
    rows: Rows
    """Positions of the payloads that the rows came from, `int64`, never falling: one for each, or several (`each`)."""
    failed: dict[int, WireError]
    """Position to the error of a payload that cannot be read. A tombstone (`None`) is neither here nor in `rows`."""


def read_json(values: Sequence[Any], wanted: frozenset[str], options: JsonOptions) -> ReadJson:
    """The columns of many payloads: bytes, or `None` for a tombstone, which is passed over.

    Keys that are `wanted` are decoded and checked. All others stay as they came (`WireColumn`, with a `JsonDecoder`):
    errors in them show only when they are read. A payload fails if it is no JSON object, exceeds the limits, or has a
    value under a wanted key that no `Data` can hold; with `each`, it fails with all its rows.
    """
    rows: Sequence[int]
    failed: dict[int, WireError] = {}
    payloads = list(values)
    is_usual = _are_usual(payloads, options)
    if is_usual and (every := _alike_columns(payloads, wanted, options)) is not None:
        return ReadJson(every, np.arange(len(payloads)), failed)
    plains = _plains(payloads) if is_usual else None
    if plains is not None:
        rows = range(len(payloads))
        found = Documents(plains, payloads, options.fields)
    else:
        found, rows = _one_by_one(payloads, options, failed)
    columns, wrong = _columns(found, wanted, options)
    if wrong:
        # The others are read again without these, whose values are to leave no trace in the form of a column.
        for row, reason in wrong.items():
            failed.setdefault(rows[row], reason)
        kept = [row for row, position in enumerate(rows) if position not in failed]
        rows = [rows[row] for row in kept]
        columns, _ = _columns(found.take(kept), wanted, options)
    return ReadJson(columns, np.array(rows, np.int64), failed)


@dataclass(frozen=True, slots=True)
class JsonDecoder:
    """Decodes a `WireColumn` whose entries are texts of JSON values. Decoders of equal limits are equal."""

    limits: Limits = DEFAULT_LIMITS

    def __call__(self, entries: Sequence[Any]) -> Column:
        """The column of these texts. Raises `RowsFailed` naming the rows whose text is no value."""
        if isinstance(entries, Spans) and (native := choose().native) is not None:
            from pipelines.wire.compiled_json import compiled_values

            if (column := compiled_values(native, entries, self)) is not None:
                return column
        column, failed = self.read(entries)
        if failed:
            raise RowsFailed(failed)
        return column

    def plain(self, entry: bytes) -> Any:
        """The value of this text as Python's `json` gives it."""
        return parsed(entry)

    def read(self, entries: Sequence[Any]) -> tuple[Column, dict[int, WireError]]:
        """The column of these texts, in plain Python, and the errors of those that are no value by position."""
        if isinstance(entries, Undecoded):
            plain = entries.plain()
        else:
            plain = [None if entry is None else parsed(entry) for entry in entries]
        return read_column(plain, PlainRules(self.limits, finite=True))


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
    prefixes: list[bytes] = []
    parts: list[Sequence[bytes | None]] = []
    rare: list[list[bytes]] | None = None
    for key, column in rare_last(batch):
        prefix = writer.prefix(key, column, failed)
        if prefix is None:
            continue
        if isinstance(column, SparseColumn):
            rare = rare or [[] for _ in range(batch.size)]
            for row, text in writer.cells(key, column, failed):
                rare[row].append(prefix + text)
        else:
            prefixes.append(prefix)
            parts.append(writer.texts(key, column, failed))
    begin, between, end = (b"{\n  ", b",\n  ", b"\n}") if form.pretty else (b"{", b",", b"}")
    if rare is not None:
        prefixes.append(b"")
        parts.append([between.join(own) if own else None for own in rare])
    if parts and not failed and not any(None in part for part in parts):
        # All rows have the same keys: the text between their values is the same, too.
        befores = [begin + prefixes[0], *(between + prefix for prefix in prefixes[1:])]
        pieces: list[Any] = [
            piece for before, part in zip(befores, parts, strict=True) for piece in (repeat(before), part)
        ]
        return WrittenJson(list(map(b"".join, zip(*pieces, repeat(end)))), failed)
    texts: list[bytes | None] = [None] * batch.size
    for row, entries in enumerate(zip(*parts, strict=True) if parts else [()] * batch.size):
        if row in failed:
            continue
        there = [prefix + entry for prefix, entry in zip(prefixes, entries, strict=True) if entry is not None]
        texts[row] = begin + between.join(there) + end if there else b"{}"
    return WrittenJson(texts, failed)


def rare_last(batch: Batch) -> list[tuple[str, Column]]:
    """The columns of a batch, those of rare keys behind the others."""
    columns = [(key, batch.column(key)) for key in batch.columns]
    return sorted(columns, key=lambda item: isinstance(item[1], SparseColumn))


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

    def texts(self, key: str, column: Column, failed: dict[int, Exception]) -> Sequence[bytes | None]:
        """The text of each row, `None` where it has none."""
        if isinstance(column, WireColumn) and isinstance(column.entries, Undecoded):
            return column.entries.texts()
        if not self._pretty and (texts := _usual_texts(column)) is not None:
            return texts
        found: list[bytes | None] = [None] * len(column)
        for row, text in self.cells(key, column, failed):
            found[row] = text
        return found

    def cells(self, key: str, column: Column, failed: dict[int, Exception]) -> Iterator[tuple[int, bytes]]:
        """Position and text of each row that has the key."""
        inner, rows = (column.column, column.rows) if isinstance(column, SparseColumn) else (column, None)
        if isinstance(inner, WireColumn) and isinstance(inner.decoder, JsonDecoder):
            for at, raw in enumerate(inner.entries):
                if raw is not None:
                    yield (at if rows is None else rows[at]), raw
            return
        for row, value in column.all_cells():
            if isinstance(value, OddValue) and isinstance(value.decoder, JsonDecoder):
                yield row, value.entry
                continue
            try:
                text = self._value(_FORM.value(value))
                # Line breaks of strings are escaped: these are between tokens.
                found = (text.replace("\n", "\n  ") if self._pretty else text).encode()
            except MissingPackageError:
                raise
            except UnicodeEncodeError as error:
                failed[row] = WireError(f"half of a surrogate pair at character {error.start} is no text")
            except (DataError, WireError, ValueError, TypeError) as error:
                failed.setdefault(row, unwritten(key, value, error))
            else:
                yield row, found

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


def _usual_texts(column: Column) -> list[bytes] | None:
    """The texts of numbers, arrays or strings that all rows have; `None` for values that need a look at each."""
    if column.mask is not None:
        return None
    if isinstance(column, ObjectColumn) and column.type is ValueType.STRING:
        values, numbers = column.objects, None
    elif isinstance(column, NumbersColumn):
        values, numbers = column.values(), column.storage
    elif isinstance(column, DenseColumn) and column.storage.dtype.kind in "iuf":
        values, numbers = _FORM.array(column.storage), column.storage
    else:
        return None
    if numbers is not None and numbers.dtype.kind == "f" and not _without_exponent(numbers):
        return None
    try:
        return list(map(_ENCODER.encode, values))
    except (UnicodeEncodeError, TypeError):
        # Half of a surrogate pair, or a text of numpy's.
        return None


def _without_exponent(numbers: Any) -> bool:
    """Whether all numbers are finite and such as Python writes without an exponent: others are written otherwise."""
    sizes = np.abs(numbers, dtype=np.float64)
    return bool(((sizes < 1e16) & ((sizes >= 1e-4) | (sizes == 0))).all())


def _are_usual(payloads: list[Any], options: JsonOptions) -> bool:
    """Whether all payloads are bytes and far from the limits; else each needs a look."""
    if set(map(type, payloads)) != {bytes} or max(map(len, payloads)) >= _short(options):
        return False
    return _most(payloads, b"{") + _most(payloads, b"[") <= options.limits.max_depth


def _plains(payloads: list[bytes]) -> list[dict[str, Any]] | None:
    """The objects of payloads all of which are one; `None` if they are not."""
    try:
        plains = list(map(quickly_parsed, payloads))
    except REFUSED:
        return None
    return plains if set(map(type, plains)) == {dict} else None


def _most(payloads: list[bytes], sign: bytes) -> int:
    """The largest count of the sign in a payload, at least 1. Finding is quicker than counting."""
    last = list(map(bytes.rfind, payloads, repeat(sign)))
    if max(last) <= 0 or last == list(map(bytes.find, payloads, repeat(sign))):
        return 1
    return max(map(bytes.count, payloads, repeat(sign)))


def _one_by_one(payloads: list[Any], options: JsonOptions, failed: dict[int, WireError]) -> tuple[Documents, list[int]]:
    """The rows of these payloads, and the positions of the payloads that they came from."""
    plains: list[dict[str, Any]] = []
    texts: list[bytes] = []
    rows: list[int] = []
    for position, payload in enumerate(payloads):
        if payload is None:
            continue
        try:
            own = _documents(text_of(payload, options.limits), options)
        except WireError as error:
            failed[position] = without_traceback(error)
        else:
            plains += [plain for plain, _ in own]
            texts += [text.encode() for _, text in own]
            rows += [position] * len(own)
    return Documents(plains, texts, options.fields), rows


def _short(options: JsonOptions) -> int:
    """Bytes below which no payload can have too many keys or too many elements."""
    if options.each:
        return 0
    limits = options.limits
    return min(limits.max_bytes, limits.max_keys, limits.max_elements - limits.max_depth)


def _instead(plain: object) -> str:
    """A hint at the codec or option that reads such a payload."""
    if isinstance(plain, list):
        return "; each: true in the codec makes a row of every element"
    if isinstance(plain, (int, float)) and not isinstance(plain, bool):
        return "; a bare number is read by codec: {type: csv, names: [value], types: {value: number}}"
    return encoded_twice(plain)


def _documents(text: str, options: JsonOptions) -> list[tuple[dict[str, Any], str]]:
    """The rows of a payload, each parsed and with its text."""
    if not options.each:
        check_size(text, options.limits)
        plain = parsed(text)
        if plain.__class__ is not dict:
            raise WireError(f"a record is a JSON object, not {_name(plain)}{_instead(plain)}")
        return [(plain, text)]
    found: list[tuple[dict[str, Any], str]] = []
    for plain, part in documents(text):
        if plain.__class__ is not dict:
            raise WireError(
                f"each row is a JSON object, but number {len(found)} is {_name(plain)}{encoded_twice(plain)}"
            )
        check_size(part, options.limits)
        options.limits.check_elements(len(found))
        found.append((plain, part))
    return found


def _alike_columns(payloads: list[bytes], wanted: frozenset[str], options: JsonOptions) -> dict[str, Column] | None:
    """The columns of rows that all have the same keys; `None` if they have not, or a wanted key of one has no value."""
    found = None if options.fields else alike(payloads, wanted)
    if found is None:
        return None
    rules = PlainRules(options.limits, finite=True)
    parts: dict[str, list[Column]] = {key: [] for key in found.keys if key in wanted}
    try:
        for values in found.read():
            for key, own in parts.items():
                column, failed = read_column(values[key], rules)
                if failed:
                    return None
                own.append(column)
    except REFUSED:
        return None
    decoder = JsonDecoder(options.limits)
    return {
        key: _joined(parts[key], rules) if key in parts else WireColumn(Undecoded(found, key), decoder)
        for key in found.keys
    }


def _joined(parts: list[Column], rules: PlainRules) -> Column:
    column = Column.concat(parts)
    if isinstance(column, ObjectColumn) and not all(isinstance(part, ObjectColumn) for part in parts):
        # Of parts in several forms, as integers and floats, which together have a form as well.
        column, _ = read_column(column.values(), rules)
    return column


def _columns(
    found: Documents, wanted: frozenset[str], options: JsonOptions
) -> tuple[dict[str, Column], dict[int, WireError]]:
    columns: dict[str, Column] = {}
    failed: dict[int, WireError] = {}
    decoder = JsonDecoder(options.limits)
    rules = PlainRules(options.limits, finite=True)
    size = len(found)

    def read(key: str, values: Sequence[Any]) -> None:
        columns[key], errors = read_column(values, rules)
        for row, error in errors.items():
            note_unreadable(failed, row, key, error)

    for key, positions, values in by_key(found.values, None):
        listed = _present(positions, values)
        if not _is_text(key):
            wrong = WireError("a key is no text: it holds half of a surrogate pair")
            failed.update((row, wrong) for row in (range(size) if listed is None else listed))
        elif key in wanted:
            read(key, values if positions is None else _spread(size, positions, values))
        elif positions is not None:
            assert listed is not None
            columns[key] = SparseColumn(size, listed, WireColumn(Undecoded(found, key, listed), decoder))
        else:
            columns[key] = WireColumn(Undecoded(found, key), decoder, _mask(listed, size))
    return {key: column for key, column in columns.items() if not column.empty}, failed


def _present(positions: Sequence[int] | None, values: Sequence[Any]) -> list[int] | None:
    """The rows that have a value that is not null; `None` for all."""
    if positions is None:
        if _NULL not in set(map(type, values)):
            return None
        return [row for row, value in enumerate(values) if value is not None]
    return [row for row, value in zip(positions, values, strict=True) if value is not None]


def _mask(rows: Sequence[int] | None, size: int) -> Mask | None:
    if rows is None:
        return None
    mask = np.zeros(size, np.bool_)
    mask[rows] = True
    return mask


def _spread(size: int, positions: Sequence[int], values: Sequence[Any]) -> list[Any]:
    whole: list[Any] = [None] * size
    for row, value in zip(positions, values, strict=True):
        whole[row] = value
    return whole


def _is_text(key: str) -> bool:
    if key.isascii():
        return True
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True


def _without_nan(plain: Any) -> Any:
    if plain.__class__ is float:
        return None if plain - plain != 0.0 else plain
    if plain.__class__ is list:
        return [_without_nan(one) for one in plain]
    if plain.__class__ is dict:
        return {key: _without_nan(one) for key, one in plain.items()}
    return plain


def _name(plain: object) -> str:
    names: dict[type, str] = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(plain), "null")


_NULL = type(None)
_FORM: Final = PlainForm()
_ENCODER: Final = msgspec.json.Encoder()
_COMPACT: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_PRETTY: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=2)
