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
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

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

EXACT: Final = 1 << 53
"""Integers up to here are exact in float64."""


@dataclass(frozen=True, slots=True)
class PlainRules:
    """Which plain values are values."""

    limits: Limits = DEFAULT_LIMITS
    """Of depths and keys; the rest is for the reader of the bytes."""
    finite: bool = False
    """Whether infinite numbers are none: a parser of JSON text makes them of numbers that are too large."""


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
        failed[row] = WireError.unreadable(key, why)


def read_column(values: Sequence[object], rules: PlainRules = RULES) -> tuple[Column, dict[int, WireError]]:
    """The decoded column of the values of a key, `None` where a row has none, and the errors of rows by position.

    Rows with an error lack the key in the column. Numbers are a dense column, or a `NumbersColumn` where integers stand
    beside floats; lists of numbers of equal rank are a `ListsColumn`.
    """
    there, present = _there(values)
    kinds = set(map(type, there))
    column = _column(there, kinds, rules)
    if column is not None and not (rules.finite and _infinite(column)):
        return _spread(column, present), {}
    failed: dict[int, WireError] = {}
    positions: Sequence[int] = range(len(values)) if present is None else np.flatnonzero(present).tolist()
    read: list[Any] = [MISSING] * len(values)
    for position, value in zip(positions, there, strict=True):
        try:
            read[position] = read_value(value, rules)
        except WireError as error:
            failed[position] = error
    return _of_read(read), failed


@dataclass(frozen=True, slots=True)
class PlainDecoder:
    """Decodes a `WireColumn` whose entries are plain values, `None` where a row has none. Raises `RowsFailed`."""

    rules: PlainRules = RULES
    may_give_images: ClassVar[bool] = False

    def plain(self, entry: Any) -> Any:
        """A copy of the value."""
        return copy.deepcopy(entry)

    def __call__(self, entries: Sequence[Any]) -> Column:
        column, failed = read_column(entries, self.rules)
        if failed:
            raise RowsFailed(failed)
        return column


class ReadRows(NamedTuple):
    """The result of `read_rows`."""

    columns: dict[str, Column]
    """Key to its column, with a row for each row that was given."""
    failed: dict[int, WireError]
    """Position to the error of a row in which a wanted key holds no value."""


def read_rows(rows: Sequence[Mapping[str, object]], wanted: frozenset[str], rules: PlainRules = RULES) -> ReadRows:
    """Columns of rows of plain values. Keys that are `wanted` are decoded and checked now.

    Other keys are a `WireColumn` with a `PlainDecoder`: decoded when they are asked for, and else written as they came
    by `plain_cells`. A key that few rows have is a `SparseColumn`. A key whose value is `None` is not there. Keys must
    be such as a `Data` can have (`check_key`).
    """
    columns: dict[str, Column] = {}
    failed: dict[int, WireError] = {}
    decoder = PlainDecoder(rules)
    for key, positions, values in by_key(rows, None):
        if positions is not None:
            pairs = [(row, value) for row, value in zip(positions, values, strict=True) if value is not None]
            if not pairs:
                continue
            if key not in wanted:
                inner = WireColumn([value for _, value in pairs], decoder)
                columns[key] = SparseColumn(len(rows), [row for row, _ in pairs], inner)
                continue
            values = [None] * len(rows)
            for row, value in pairs:
                values[row] = value
        put_column(columns, failed, key, values, None if key in wanted else decoder, rules)
    return ReadRows(columns, failed)


def put_column(
    columns: dict[str, Column],
    failed: dict[int, WireError],
    key: str,
    values: list[Any],
    decoder: PlainDecoder | None,
    rules: PlainRules,
) -> None:
    """Put the column of a key: left to `decoder`, or read now where there is none."""
    if decoder is not None:
        column: Column = WireColumn(values, decoder)
    else:
        column, wrong = read_column(values, rules)
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
            return list(value) if element_type(value) in _PLAIN else [self.value(one) for one in value]
        if kind is ValueType.DATA:
            return {key: self.value(one) for key, one in value.held.items()}
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
    if isinstance(inner, WireColumn) and isinstance(inner.decoder, PlainDecoder):
        for at, value in enumerate(inner.entries):
            if value is not None:
                yield (at if positions is None else positions[at]), value
        return
    if column.mask is None and isinstance(column, DenseColumn):
        yield from enumerate(form.array(column.storage))
        return
    for row, value in column.all_cells():
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


def _column(values: list[Any], kinds: set[type], rules: PlainRules = RULES) -> Column | None:
    """The column of values that all are there, without a look at each; `None` if that is not possible."""
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


def _infinite(column: Column) -> bool:
    """Whether a number is infinite."""
    if isinstance(column, ListsColumn):
        column = column.arrays
    if isinstance(column, RaggedColumn):
        array = column.samples
    elif isinstance(column, (DenseColumn, NumbersColumn)):
        array = column.storage
    else:
        return False
    return array.dtype.kind == "f" and bool(np.isinf(array).any())


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
    """Lists of numbers that are not nested; `None` for others."""
    counts = list(map(len, values))
    samples = _packed(values, counts)
    if samples is None:
        return None
    # Of the numbers that a parser of JSON gives, only floats have a fraction.
    fractions = rules.finite and not (np.floor(samples) == samples).any()
    kinds = {float} if fractions else _kinds(values, len(samples))
    if not kinds <= {int, float}:
        return None
    whole: Mask | None = None
    if kinds == {int}:
        try:
            samples = np.fromiter(itertools.chain.from_iterable(values), np.int64, len(samples))
        except OverflowError:
            return None
    elif len(kinds) == 2:
        whole = np.fromiter((float not in map(type, one) for one in values), np.bool_, len(values))
        if any(
            max(one) > EXACT or min(one) < -EXACT
            for one, is_whole in zip(values, whole, strict=True)
            if is_whole and one
        ):
            return None
        if not (np.abs(samples) < _BEYOND).all():
            # Maybe an integer beyond 64 bits: each is looked at.
            return None
    if len(set(counts)) == 1:
        return ListsColumn(DenseColumn(samples.reshape(len(values), counts[0])), whole)
    splits = np.zeros(len(values) + 1, np.int64)
    np.cumsum(counts, out=splits[1:])
    return ListsColumn(RaggedColumn(samples, splits), whole)


def _packed(values: list[list[Any]], counts: list[int]) -> npt.NDArray[Any] | None:
    """The numbers of all lists as float64; `None` if one has something else, or an integer that is too large."""
    # Several times as quick as numpy, which looks for the type of each number.
    pack = {count: struct.Struct(f"{count}d").pack for count in set(counts)}
    try:
        packed = b"".join([pack[count](*one) for count, one in zip(counts, values, strict=True)])
    except struct.error:
        return None
    return np.frombuffer(packed) if packed else np.zeros(0)


def _kinds(values: list[list[Any]], count: int) -> set[type]:
    """The types of the elements of these lists."""
    types = list(map(type, itertools.chain.from_iterable(values)))
    # To count them is twice as quick as to find which there are.
    return {float} if types.count(float) == count else set(types)


def _of_read(values: list[Any]) -> Column:
    """The column of native values and gaps, some of which were looked at one by one."""
    there, present = _there([None if value is MISSING else value for value in values])
    kinds = set(map(type, there))
    column = _nested(there) if kinds == {list} else None
    column = column or _column(there, kinds) or Column.of(there)
    return _spread(column, present)


def _nested(values: list[list[Any]]) -> Column | None:
    """Nested lists of numbers that are of one shape; `None` for others."""
    kinds: set[type] = set()
    flat: list[Any] = values
    while flat:
        kinds = set(map(type, flat))
        if kinds != {list}:
            break
        flat = list(itertools.chain.from_iterable(flat))
    if kinds not in ({int}, {float}):
        return None
    try:
        array: Any = np.array(values, np.int64 if kinds == {int} else np.float64)
    except (ValueError, OverflowError):
        return None
    return ListsColumn(DenseColumn(array))


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
    found = np.zeros((size, *array.shape[1:]), array.dtype)
    found[there] = array
    return found


def _list(plain: list[Any], rules: PlainRules, depth: int) -> list[Any]:
    rules.limits.check_depth(depth)
    kinds = set(map(type, plain))
    if _NOTHING in kinds:
        at = plain.index(None)
        raise WireError(f"null is no value; leave element {at} out of the list, or write a value there")
    values = [read_value(one, rules, depth) for one in plain]
    if kinds == {int, float}:
        return [float(one) for one in values]
    found = {type_of(one) for one in {one.__class__: one for one in values}.values()}
    if len(found) > 1:
        names = ", ".join(sorted(one.name for one in found))
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
    found: dict[str, Any] = {} if value.label is None else {"label": value.label}
    return found if value.probability is None else {**found, "probability": value.probability}


_NOTHING = type(None)
_BEYOND: Final = 2.0**63
_AS_THEY_ARE = frozenset({bool, bytes})
_INFINITE = (math.inf, -math.inf)
_PLAIN = frozenset({ValueType.STRING, ValueType.INT64, ValueType.DOUBLE, ValueType.BOOLEAN})
