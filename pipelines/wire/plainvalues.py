"""Values as parsers of JSON, Avro, MessagePack and the like give them, as columns and rows, and back.

Plain values are `None`, `bool`, `int`, `float`, `str`, `bytes`, lists and dictionaries. The rules are the same for all
formats: integers within 64 bits are INT64, other numbers DOUBLE, dictionaries nested `Data`, `None` is a missing key.
A list of numbers is an array or a LIST, as it is asked for. Plain data that cannot be a value (a list of several
types, 2**70, `[1, None]`) is an error when its key is asked for; until then it is passed through as it came.
"""

from __future__ import annotations

import binascii
import copy
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, DenseColumn, Mask, ObjectColumn, RaggedColumn
from pipelines.data.data import Data
from pipelines.data.listscolumn import ListsColumn
from pipelines.data.numberscolumn import NumbersColumn
from pipelines.data.sparsecolumn import SparseColumn, by_key
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import DataError, MissingPackageError, RowsFailed, WireError
from pipelines.values import BoundingBox, Image, Point, ValueType, element_type, type_of
from pipelines.values.native import INT64_MAX, INT64_MIN, native
from pipelines.values.oddvalue import OddValue
from pipelines.wire.limits import DEFAULT_LIMITS, Limits
from pipelines.wire.owndigits import in_digits_of_float32
from pipelines.wire.shortest import shortest
from pipelines.wire.stated.types import Decoders, Stated, gives_images

EXACT: Final = 1 << 53
"""Integers up to here are exact in float64."""


@dataclass(frozen=True, slots=True)
class PlainRules:
    """Which plain values are values."""

    limits: Limits = DEFAULT_LIMITS
    """Of depths and keys; the rest is for the reader of the bytes."""
    finite: bool = False
    """Whether infinite numbers are none: a parser of JSON text makes them of numbers that are too large."""
    stated: Stated | None = None
    """The type that the values of a column are to be of."""


RULES: Final = PlainRules()
"""The rules of forms that have infinite numbers."""


def read_value(plain: Any, rules: PlainRules = RULES, depth: int = 0) -> Any:
    """The native value that `plain` is (`pipelines.values.native`). Raises `WireError` if it is none.

    `depth` is how many levels it lies below the record; more than `max_depth` of the limits are an error.
    """
    kind = plain.__class__
    if kind is float:
        if rules.finite and plain in _INFINITE:
            raise WireError("a number is beyond the largest, 1.8e308; send it as a text")
    elif kind is str:
        _check_text(plain)
    elif kind is int:
        _check_integer(plain)
    elif kind is list:
        return _list(plain, rules, depth + 1)
    elif kind is dict:
        return _data(plain, rules, depth + 1)
    elif plain is None:
        raise WireError("null is no value; leave the key out")
    elif issubclass(kind, tuple):
        # Parsers make lists of lists: this is an extension of MessagePack.
        raise WireError(f"a value of type {kind.__name__} is not a number, text, list or map")
    elif kind not in _AS_THEY_ARE:
        try:
            return native(plain)
        except DataError as error:
            raise WireError(f"a value of type {kind.__name__} is none of a Data: {error}") from None
    return plain


def note_unreadable(failed: dict[int, WireError], row: int, key: str, why: object) -> None:
    """Add the error of a row whose value of `key` cannot be read.

    Of several such keys the first by name is reported, so that the error does not depend on the keys of other rows.
    """
    known = failed.get(row)
    if known is None or (known.key is not None and key < known.key):
        failed[row] = why if isinstance(why, WireError) and why.key == key else WireError.unreadable(key, why)


def read_column(values: Sequence[object], rules: PlainRules = RULES) -> tuple[Column, dict[int, WireError]]:
    """The decoded column of the values of a key, `None` where a row has none, and the errors of rows by position.

    With a stated type values are made of that type. Rows with an error lack the key in the column. Numbers are a dense
    column, or a `NumbersColumn` where integers stand beside floats; lists of numbers of equal rank are a `ListsColumn`.
    """
    failed: dict[int, WireError] = {}
    there, present = _there(values)
    stated = rules.stated
    # Where infinite numbers are errors, and where some values are of another type than is stated, each is looked at.
    alike = there if stated is None else stated.quickly(there)
    column = None if rules.finite or alike is None else _column(alike, rules)
    if column is None:
        read: list[Any] = [None] * len(values)
        for row, value in enumerate(values):
            if value is not None:
                try:
                    if stated is None or type(value) in stated.kept:
                        read[row] = read_value(value, rules)
                    else:
                        read[row] = stated.converted(value)
                except WireError as error:
                    failed[row] = error
        there, present = _there(read)
        column = _column(there, rules)
        if column is None:
            column = Column.of(there)
    return _spread(column, present), failed


@dataclass(frozen=True, slots=True)
class PlainDecoder:
    """Decodes a `WireColumn` whose entries are plain values, `None` where a row has none. Raises `RowsFailed`."""

    rules: PlainRules = RULES
    is_written: bool = True
    """Whether formats of plain values write undecoded values as they are; not if each is the text of another value."""

    @property
    def converts(self) -> bool:
        """Whether a type is stated (`Column.converts`)."""
        return self.rules.stated is not None

    @property
    def may_give_images(self) -> bool:
        """Whether the type that is stated is that of images."""
        return gives_images(self.rules.stated)

    def plain(self, entry: Any) -> Any:
        """A copy of a value that no `Data` can hold. Raises `WireError` if a type is stated, of which it is not."""
        if self.rules.stated is not None:
            for error in read_column([entry], self.rules)[1].values():
                raise error
        return copy.deepcopy(entry)

    def __call__(self, entries: Sequence[Any]) -> Column:
        column, failed = read_column(entries, self.rules)
        if failed:
            raise RowsFailed(failed)
        return column


def is_written(decoder: object) -> bool:
    """Whether what it decodes are plain values that are written as they are, undecoded."""
    return isinstance(decoder, PlainDecoder) and decoder.is_written


class ReadRows(NamedTuple):
    """The result of `read_rows`."""

    columns: dict[str, Column]
    """Key to its column, with a row for each row that was given."""
    failed: dict[int, WireError]
    """Position to the error of a row in which a wanted key holds no value."""


PLAIN_DECODERS: Final = Decoders(lambda _: PlainDecoder())
"""Decoders by the rules of forms that have infinite numbers; no types are stated."""


def read_rows(
    rows: Sequence[Mapping[str, object]],
    wanted: frozenset[str],
    decoders: Mapping[str, PlainDecoder] = PLAIN_DECODERS,
) -> ReadRows:
    """Columns of rows of plain values. Keys that are `wanted` are decoded and checked now.

    Other keys are a `WireColumn` with a `PlainDecoder`: decoded when they are asked for, and else written as they came
    by `plain_cells`. A key that few rows have is a `SparseColumn`. A key whose value is `None` is not there. Keys must
    be such as a `Data` can have (`check_key`).
    """
    columns: dict[str, Column] = {}
    failed: dict[int, WireError] = {}
    for key, positions, values in by_key(rows, None):
        if positions is not None:
            pairs = [(row, value) for row, value in zip(positions, values, strict=True) if value is not None]
            if not pairs:
                continue
            if key not in wanted:
                inner = WireColumn([value for _, value in pairs], decoders[key])
                columns[key] = SparseColumn(len(rows), [row for row, _ in pairs], inner)
                continue
            values = [None] * len(rows)
            for row, value in pairs:
                values[row] = value
        put_column(columns, failed, key, values, decoders[key], wanted=key in wanted)
    return ReadRows(columns, failed)


def put_column(
    columns: dict[str, Column],
    failed: dict[int, WireError],
    key: str,
    values: list[Any],
    decoder: PlainDecoder,
    *,
    wanted: bool,
) -> None:
    """Put the column of a key: left to the decoder, or read now if it is `wanted`."""
    if not wanted:
        column: Column = WireColumn(values, decoder)
    else:
        column, wrong = read_column(values, decoder.rules)
        for row, error in wrong.items():
            note_unreadable(failed, row, key, error)
    if not column.empty:
        columns[key] = column


@dataclass(frozen=True, slots=True)
class PlainForm:
    """How values become plain ones, by the abilities of the form that is written."""

    bytes_as_text: bool = True
    """Bytes as base64, for forms without bytes."""
    shortest: bool = True
    """Floats of 16 and 32 bits as the shortest number that gives them back: 0.1, not 0.10000000149011612. For text."""

    def value(self, value: Any) -> Any:
        """A native value as a plain one.

        Arrays become (nested) lists, an image `{format, base64}` (or `{format, bytes}`), a box and a point objects with
        their numbers, label and probability. NaN and infinities stay floats, and odd values the plain ones that came.
        """
        if isinstance(value, OddValue):
            return value.plain()
        kind = type_of(value)
        if kind in _PLAIN:
            return value
        if kind is ValueType.NDARRAY:
            return self.array(value)
        if kind is ValueType.LIST:
            return list(value) if element_type(value) in _PLAIN else [self.value(element) for element in value]
        if kind is ValueType.DATA:
            return {key: self.value(inner) for key, inner in value.held.items()}
        if kind in (ValueType.BYTES, ValueType.BYTEBUFFER):
            return self._bytes(bytes(value))
        if isinstance(value, Image):
            # The file that came in, unchanged; pixels that a step has made become PNG.
            content = value.encoded if value.encoded is not None and value.format else value.to_wire()
            name = "base64" if self.bytes_as_text else "bytes"
            return {"format": (value.format or "PNG").lower(), name: self._bytes(content)}
        if isinstance(value, BoundingBox):
            names = ("x1", "x2", "y1", "y2") if value.form == "XY" else ("cx", "cy", "h", "w")
            plain = {**dict(zip(names, value.numbers, strict=True)), **_label(value)}
            return in_digits_of_float32(plain) if self.shortest and value.narrow else plain
        if isinstance(value, Point):
            return {"coords": list(value.coords), **_label(value)}
        raise WireError(f"a value of type {kind.name} cannot be written as plain numbers, texts and lists")

    def array(self, array: Any) -> Any:
        """An array as (nested) lists of Python's numbers; one number for an array without axes."""
        if self.shortest and (array.dtype.itemsize < 8 and array.dtype.kind == "f"):
            return shortest(array).tolist()
        if array.dtype.name == "bfloat16":
            return array.astype(np.float32).tolist()
        return array.tolist()

    def _bytes(self, content: bytes) -> Any:
        if not self.bytes_as_text:
            return content
        return binascii.b2a_base64(content, newline=False).decode("ascii")


def plain_rows(batch: Batch, form: PlainForm, failed: dict[int, Exception]) -> list[dict[str, Any]]:
    """Each row of a batch as a dictionary of plain values, in the batch's order of keys, without metadata.

    Values of `read_rows` that were not asked for are the objects that came in. Errors of rows that cannot be written
    are put into `failed` by position.
    """
    rows: list[dict[str, Any]] = [{} for _ in range(batch.size)]
    for key in batch.columns:
        for row, value in plain_cells(key, batch.column(key), form, failed):
            rows[row][key] = value
    return rows


def plain_cells(key: str, column: Column, form: PlainForm, failed: dict[int, Exception]) -> Iterator[tuple[int, Any]]:
    """Position and plain value of each row that has the key; errors are put into `failed`."""
    inner, positions = (column.column, column.rows) if isinstance(column, SparseColumn) else (column, None)
    if isinstance(inner, WireColumn) and is_written(inner.decoder):
        for at, value in enumerate(inner.entries):
            if value is not None:
                yield (at if positions is None else positions[at]), value
        return
    if column.mask is None and isinstance(column, DenseColumn):
        yield from enumerate(form.array(column.storage))
        return
    for row, value in column.all_cells():
        if isinstance(value, OddValue) and is_written(value.decoder):
            yield row, value.entry
            continue
        try:
            yield row, form.value(value)
        except MissingPackageError:
            raise
        except (DataError, WireError) as error:
            failed.setdefault(row, unwritten(key, value, error))


def unwritten(key: str, value: Any, error: Exception) -> WireError:
    """The error of a value that cannot be written: that it could not be read, if so."""
    return value.error(key) if isinstance(value, OddValue) else WireError.within(key, error, "written")


def _there(values: Sequence[object]) -> tuple[list[Any], Mask | None]:
    if _NOTHING not in set(map(type, values)):
        return list(values), None
    present = np.fromiter((value is not None for value in values), np.bool_, len(values))
    return [value for value in values if value is not None], present


def _column(values: list[Any], rules: PlainRules) -> Column | None:
    """The column of values that all are there, without a look at each; `None` if that is not possible."""
    kinds = set(map(type, values))
    if not values:
        return ObjectColumn([])
    if kinds == {float}:
        return DenseColumn(np.array(values, np.float64), ValueType.DOUBLE)
    if kinds == {bool}:
        return DenseColumn(np.array(values, np.bool_), ValueType.BOOLEAN)
    if kinds == {int}:
        return _integers(values)
    if kinds == {int, float}:
        return _numbers(values)
    if kinds == {str}:
        return ObjectColumn(values, ValueType.STRING) if _texts(values) else None
    if kinds == {list}:
        return _lists(values, rules)
    return None


def _integers(values: list[int]) -> Column | None:
    try:
        return DenseColumn(np.array(values, np.int64), ValueType.INT64)
    except OverflowError:
        return None


def _numbers(values: list[Any]) -> Column | None:
    whole = np.fromiter((value.__class__ is int for value in values), np.bool_, len(values))
    if any(value.__class__ is int and not -EXACT <= value <= EXACT for value in values):
        return None
    return NumbersColumn(np.array(values, np.float64), whole)


def _lists(values: list[list[Any]], rules: PlainRules) -> Column | None:
    """Lists of numbers, or nested ones of one shape; `None` for others."""
    numbers: list[Any] = values
    kinds: set[type] = {list}
    levels = 0
    while kinds == {list}:
        numbers = list(itertools.chain.from_iterable(numbers))
        kinds = set(map(type, numbers))
        levels += 1
    if not kinds <= {int, float} or levels > rules.limits.max_depth or (levels > 1 and len(kinds) != 1):
        return None
    whole: Mask | None = None
    if len(kinds) == 2:
        if any(number.__class__ is int and not -EXACT <= number <= EXACT for number in numbers):
            return None
        whole = np.fromiter((float not in map(type, value) for value in values), np.bool_, len(values))
    dtype = np.int64 if kinds == {int} else np.float64
    counts = list(map(len, values))
    try:
        if levels > 1:
            return ListsColumn(DenseColumn(np.array(values, dtype)), whole)
        if len(set(counts)) == 1:
            return ListsColumn(DenseColumn(np.array(numbers, dtype).reshape(len(values), -1)), whole)
        return ListsColumn(RaggedColumn(np.array(numbers, dtype), np.cumsum([0, *counts])), whole)
    except (ValueError, OverflowError):
        return None


def _spread(column: Column, present: Mask | None) -> Column:
    """The column with gaps where `present` is false."""
    if present is None:
        return column
    size, there = len(present), np.flatnonzero(present)
    if not len(there):
        return Column.absent(size)
    if isinstance(column, DenseColumn):
        assert column.type is not None
        return DenseColumn(_scattered(column.storage, there, size), column.type, present)
    if isinstance(column, NumbersColumn):
        storage, whole = _scattered(column.storage, there, size), _scattered(column.whole, there, size)
        return NumbersColumn(storage, whole, present)
    if isinstance(column, ListsColumn):
        whole = None if column.whole is None else _scattered(column.whole, there, size)
        return ListsColumn(_spread(column.arrays, present), whole)
    if isinstance(column, RaggedColumn):
        splits = np.zeros(size + 1, np.int64)
        splits[there + 1] = np.diff(column.splits)
        return RaggedColumn(column.samples, np.cumsum(splits), present)
    values: list[Any] = [MISSING] * size
    for row, value in zip(there.tolist(), column.values(), strict=True):
        values[row] = value
    return ObjectColumn(values, column.type, present)


def _scattered(array: Any, there: Any, size: int) -> Any:
    scattered = np.zeros((size, *array.shape[1:]), array.dtype)
    scattered[there] = array
    return scattered


def _list(plain: list[Any], rules: PlainRules, depth: int) -> list[Any]:
    rules.limits.check_depth(depth)
    kinds = set(map(type, plain))
    if _NOTHING in kinds:
        at = plain.index(None)
        raise WireError(f"null is no value; leave element {at} out of the list, or write a value there")
    values = [read_value(element, rules, depth) for element in plain]
    if kinds == {int, float}:
        return [float(value) for value in values]
    types = {type_of(value) for value in {value.__class__: value for value in values}.values()}
    if len(types) > 1:
        names = ", ".join(sorted(kind.name for kind in types))
        raise WireError(f"a list has elements of one type, not of {names}")
    return values


def _data(plain: Mapping[Any, Any], rules: PlainRules, depth: int) -> Data:
    rules.limits.check_depth(depth)
    rules.limits.check_keys(len(plain))
    values: dict[str, Any] = {}
    for key, value in plain.items():
        if value is None:
            continue
        if not isinstance(key, str):
            raise WireError(f"a key is a text, not {key!r}")
        _check_text(key)
        try:
            values[key] = read_value(value, rules, depth)
        except WireError as error:
            raise WireError.within(key, error) from None
    return Data.trusted(values)


def _check_integer(value: Any) -> None:
    if not INT64_MIN <= value <= INT64_MAX:
        raise WireError(f"the integer {_short(value)} does not fit in 64 bits; send it as a text or with a fraction")


def _short(value: int) -> str:
    # Python refuses to write thousands of digits.
    return str(value) if -(10**60) < value < 10**60 else f"of {value.bit_length()} bits"


def _texts(values: list[str]) -> bool:
    try:
        for value in values:
            if not value.isascii():
                value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_text(text: Any) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise WireError(f"half of a surrogate pair at character {error.start} is no text") from None


def _label(value: BoundingBox | Point) -> dict[str, Any]:
    fields: dict[str, Any] = {} if value.label is None else {"label": value.label}
    return fields if value.probability is None else {**fields, "probability": value.probability}


_NOTHING = type(None)
_AS_THEY_ARE = frozenset({bool, bytes})
_INFINITE = (math.inf, -math.inf)
_PLAIN = frozenset({ValueType.STRING, ValueType.INT64, ValueType.DOUBLE, ValueType.BOOLEAN})
