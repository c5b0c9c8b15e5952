"""Plain JSON: many records to columns and back, in plain Python.

What nobody asks for is not decoded: a record's other values stay the text that they came as, and go out as that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np
from pydantic_core import from_json

from pipelines.data.batch import Batch
from pipelines.data.columns import Column, DenseColumn, Mask, Rows, WireColumn
from pipelines.data.numberscolumn import NumbersColumn
from pipelines.data.spans import Spans
from pipelines.data.sparsecolumn import SparseColumn, by_key
from pipelines.errors import DataError, MissingPackageError, RowsFailed, WireError, without_traceback
from pipelines.hotpath import compiled
from pipelines.values import ValueType
from pipelines.wire.jsondocuments import Documents, Undecoded
from pipelines.wire.jsontext import Pointer, check_size, documents, parsed, text_of
from pipelines.wire.limits import DEFAULT_LIMITS, Limits
from pipelines.wire.plainvalues import PlainForm, PlainRules, read_column

NaN: TypeAlias = Literal["null", "error"]
"""What to write for NaN and infinite numbers, which JSON has not: null, or nothing, and the record fails."""


@dataclass(frozen=True, slots=True)
class JsonOptions:
    """How records are read."""

    limits: Limits = DEFAULT_LIMITS
    fields: tuple[tuple[str, Pointer], ...] = ()
    """Keys whose values lie inside of the record, and where. They go before keys of the record with the same name."""
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
    what is wrong with them shows when somebody asks. A payload fails if it is no JSON object, exceeds the limits, or
    holds no value under a wanted key; with `each`, it fails with all its rows.
    """
    plains: list[dict[str, Any]] = []
    texts: list[str] = []
    rows: list[int] = []
    failed: dict[int, WireError] = {}
    limits, short = options.limits, _short(options)
    for position, payload in enumerate(values):
        # Most payloads; written out, because calls of our own cost more than the parser.
        if payload.__class__ is bytes and len(payload) < short:
            try:
                text = payload.decode()
                plain = from_json(text, allow_inf_nan=False)
            except ValueError:
                pass
            else:
                if plain.__class__ is dict and text.count("{") + text.count("[") <= limits.max_depth:
                    plains.append(plain)
                    texts.append(text)
                    rows.append(position)
                    continue
        if payload is None:
            continue
        try:
            own = _documents(text_of(payload, limits), options)
        except WireError as error:
            failed[position] = without_traceback(error)
        else:
            plains += [plain for plain, _ in own]
            texts += [text for _, text in own]
            rows += [position] * len(own)
    found = Documents(plains, texts, options.fields)
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
        if isinstance(entries, Spans) and (native := compiled()) is not None:
            from pipelines.wire.compiled_json import compiled_values

            if (column := compiled_values(native, entries, self)) is not None:
                return column
        column, failed = self.read(entries)
        if failed:
            raise RowsFailed(failed)
        return column

    def read(self, entries: Sequence[Any]) -> tuple[Column, dict[int, WireError]]:
        """The column of these texts, in plain Python, and the errors of those that are no value by position."""
        if isinstance(entries, Undecoded):
            plain = entries.plain()
        else:
            plain = [None if entry is None else parsed(entry.decode()) for entry in entries]
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

    Values that nobody asked for are the text that came in. Arrays are (nested) lists of numbers with the fewest digits
    that give them back, bytes base64, an image `{"format": "png", "base64": ...}`; see `PlainForm`.
    """
    writer = JsonWriter(form)
    failed: dict[int, Exception] = {}
    prefixes: list[str] = []
    parts: list[Sequence[str | None]] = []
    rare: list[list[str]] | None = None
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
    begin, between, end = ("{\n  ", ",\n  ", "\n}") if form.pretty else ("{", ",", "}")
    if rare is not None:
        prefixes.append("")
        parts.append([between.join(own) if own else None for own in rare])
    if parts and not failed and not any(None in part for part in parts):
        # Rows that all have the same keys: what stands between their values is the same, too.
        template = begin + between.join(prefix.replace("%", "%%") + "%s" for prefix in prefixes) + end
        try:
            return WrittenJson([text.encode() for text in map(template.__mod__, zip(*parts, strict=True))], failed)
        except UnicodeEncodeError:
            # Which row it is shows when each is written by itself.
            pass
    texts: list[bytes | None] = [None] * batch.size
    for row, entries in enumerate(zip(*parts, strict=True) if parts else [()] * batch.size):
        if row in failed:
            continue
        there = [prefix + entry for prefix, entry in zip(prefixes, entries, strict=True) if entry is not None]
        try:
            texts[row] = (begin + between.join(there) + end).encode() if there else b"{}"
        except UnicodeEncodeError as error:
            failed[row] = WireError(f"half of a surrogate pair at character {error.start} is no text")
    return WrittenJson(texts, failed)


def rare_last(batch: Batch) -> list[tuple[str, Column]]:
    """The columns of a batch, those of rare keys behind the others."""
    return sorted(batch.columns.items(), key=lambda item: isinstance(item[1], SparseColumn))


class JsonWriter:
    """Writes the values of columns, one by one."""

    def __init__(self, form: JsonForm) -> None:
        self._null = form.nan == "null"
        self._pretty = form.pretty
        self.text = (_PRETTY if form.pretty else _COMPACT).encode

    def prefix(self, key: str, column: Column, failed: dict[int, Exception]) -> str | None:
        """What stands before each value of the key; `None` if it cannot be written: the rows that have it fail."""
        try:
            key.encode()
        except UnicodeEncodeError as error:
            wrong = WireError(f"a key cannot be written: {error}")
            failed.update((row, wrong) for row in column.positions())
            return None
        return f"{self.text(key)}:{' ' if self._pretty else ''}"

    def texts(self, key: str, column: Column, failed: dict[int, Exception]) -> Sequence[str | None]:
        """The text of each row, `None` where it has none."""
        if isinstance(column, WireColumn) and isinstance(column.entries, Undecoded):
            return column.entries.texts()
        if not self._pretty and (numbers := self._numbers(column)) is not None:
            return numbers
        found: list[str | None] = [None] * len(column)
        for row, text in self.cells(key, column, failed):
            found[row] = text
        return found

    def cells(self, key: str, column: Column, failed: dict[int, Exception]) -> Iterator[tuple[int, str]]:
        """Position and text of each row that has the key."""
        inner, rows = (column.column, column.rows) if isinstance(column, SparseColumn) else (column, None)
        if isinstance(inner, WireColumn) and isinstance(inner.decoder, JsonDecoder):
            entries = inner.entries
            found = entries.texts() if isinstance(entries, Undecoded) else map(_text, entries)
            for at, raw in enumerate(found):
                if raw is not None:
                    yield (at if rows is None else rows[at]), raw
            return
        if not self._pretty and (texts := self._numbers(column)) is not None:
            yield from enumerate(texts)
            return
        for row, value in column.cells(failed):
            try:
                text = self._value(_FORM.value(value))
            except MissingPackageError:
                raise
            except (DataError, WireError, ValueError) as error:
                failed.setdefault(row, WireError(f'key "{key}" cannot be written: {error}'))
            else:
                # Line breaks of strings are escaped: these are between tokens.
                yield row, text.replace("\n", "\n  ") if self._pretty else text

    def _numbers(self, column: Column) -> list[str] | None:
        """The texts of a column of finite numbers or arrays, of which all rows have one."""
        if column.mask is not None:
            return None
        if isinstance(column, NumbersColumn):
            return list(map(repr, column.values()))
        if not isinstance(column, DenseColumn) or column.storage.dtype.kind not in "iuf":
            return None
        if column.storage.dtype.kind == "f" and not np.isfinite(column.storage).all():
            return None
        texts = map(repr, _FORM.array(column.storage))
        return list(texts) if column.type is not ValueType.NDARRAY else [text.replace(" ", "") for text in texts]

    def _value(self, plain: Any) -> str:
        try:
            return self.text(plain)
        except ValueError:
            # NaN or infinite, somewhere inside.
            if not self._null:
                raise WireError(
                    "it holds NaN or an infinite number, which JSON has not (nan: null writes null)"
                ) from None
            return self.text(_without_nan(plain))


def _short(options: JsonOptions) -> int:
    """Bytes below which a payload has neither too many keys nor too many elements, whatever it holds."""
    if options.each:
        return 0
    limits = options.limits
    return min(limits.max_bytes, limits.max_keys, limits.max_elements - limits.max_depth)


def _documents(text: str, options: JsonOptions) -> list[tuple[dict[str, Any], str]]:
    """The rows of a payload, each parsed and with its text."""
    if not options.each:
        check_size(text, options.limits)
        plain = parsed(text)
        if plain.__class__ is not dict:
            hint = "; each: true in the codec makes a row of every element" if isinstance(plain, list) else ""
            raise WireError(f"a record is a JSON object, not {_name(plain)}{hint}")
        return [(plain, text)]
    found: list[tuple[dict[str, Any], str]] = []
    for plain, part in documents(text):
        if plain.__class__ is not dict:
            raise WireError(f"each row is a JSON object, but number {len(found)} is {_name(plain)}")
        check_size(part, options.limits)
        options.limits.check_elements(len(found))
        found.append((plain, part))
    return found


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
            failed.setdefault(row, WireError(f'key "{key}" cannot be read: {error}'))

    keys = found.alike()
    if keys is not None and all(map(_is_text, keys)):
        # Values that nobody asks for are not looked at.
        for key in keys:
            if key in wanted:
                read(key, list(map(itemgetter(key), found.values)))
            else:
                columns[key] = WireColumn(Undecoded(found, key), decoder)
        return {key: column for key, column in columns.items() if not column.empty}, failed
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


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode()


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
_COMPACT: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_PRETTY: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=2)
