"""Runs FEATURES: numbers of many keys as one array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, DenseColumn, Mask, ObjectColumn
from pipelines.data.listscolumn import ListsColumn
from pipelines.data.result import Result
from pipelines.errors import DataError, RowsFailed, StreamerError, WrongTypeError, nearest
from pipelines.runners.forms import ArrayForm, Forms
from pipelines.runners.models.arrays import array_column, everyone
from pipelines.runners.runner import OpenContext, Runner
from pipelines.steps.models.features import Feature, Features
from pipelines.values import ValueType, list_to_array, type_of
from pipelines.values.casting import cast

Array: TypeAlias = npt.NDArray[Any]

DTYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "FLOAT": np.dtype(np.float32),
    "DOUBLE": np.dtype(np.float64),
    "INT64": np.dtype(np.int64),
    "INT32": np.dtype(np.int32),
}
NO_NUMBERS: Final[Mapping[ValueType, str]] = {
    ValueType.STRING: "a text",
    ValueType.BYTES: "bytes",
    ValueType.DATA: "nested data (an object)",
    ValueType.IMAGE: "an image",
    ValueType.POINT: "a point",
    ValueType.BOUNDING_BOX: "a bounding box",
}
"""Types of values that hold no numbers, and their names in errors."""
_NO_CATEGORIES: Final = {**NO_NUMBERS, ValueType.LIST: "a list", ValueType.NDARRAY: "an array"}
CATEGORIES: Final = (str, bool, int, float)
"""Types of values that can be a category."""


class FeaturesRunner(Runner):
    """Puts one array into each record, `[F]`, or `[k, F]` with `columns`.

    Fails a row that lacks a value without a default, or has one that is not a number, an unknown category or a number
    that the element type cannot hold. Rows whose arrays have other lengths than their neighbours' get longer or shorter
    ones: whether that is right is the model's to say.
    """

    opens_images: ClassVar[bool] = False
    keeps_rows: ClassVar[bool] = True

    def __init__(self, step: Features, context: OpenContext) -> None:
        self._stack = FeatureStack(step.fields, DTYPES[step.dtype], columns=step.columns)
        self._output = step.output
        self.keeps_keys = step.keep_other_values  # type: ignore[misc]

    @property
    def reads(self) -> frozenset[str] | None:
        return self._stack.keys

    @property
    def needs(self) -> frozenset[str]:
        return self._stack.needed

    @property
    def gives(self) -> frozenset[str] | None:
        return frozenset([self._output])

    def forms(self, given: Forms) -> Forms:
        return {**super().forms(given), self._output: self._stack.form}

    def limit(self, records: int) -> bool:
        return True

    def run_batch(self, batch: Batch) -> Result:
        column = {self._output: self._stack.of(batch)}
        return Result(batch.with_columns(column) if self.keeps_keys else batch.select(column))


class FeatureStack:
    """Stacks the features of a batch's rows.

    `length` is how many numbers a row has to have; `None`: any number of them.
    """

    def __init__(
        self,
        features: Sequence[Feature],
        dtype: np.dtype[Any],
        *,
        columns: bool = False,
        length: int | None = None,
    ) -> None:
        self._features = features
        self._dtype = dtype
        self._columns = columns
        self._length = length
        self._places = [_places(feature) for feature in features]

    @property
    def keys(self) -> frozenset[str]:
        """The keys that are read."""
        return frozenset(feature.field for feature in self._features)

    @property
    def needed(self) -> frozenset[str]:
        """The keys that every row must have: the others have a default."""
        return frozenset(feature.field for feature in self._features if feature.default is None)

    @property
    def form(self) -> ArrayForm:
        """The form of the arrays."""
        if self._columns:
            return ArrayForm(self._dtype, (None, len(self._features)))
        counts = [len(feature.one_hot) if feature.one_hot else feature.size for feature in self._features]
        known = [count for count in counts if count is not None]
        # A value without a size may be an array.
        return ArrayForm(self._dtype, (sum(known) if len(known) == len(counts) else None,))

    def of(self, batch: Batch) -> Column:
        """The array of each row, in a dense column if all have one shape. Raises `RowsFailed`."""
        try:
            return DenseColumn(self._stacked(batch))
        except WrongTypeError:
            # Rows differ in type or shape: those that agree go together.
            return self._by_group(batch)

    def _by_group(self, batch: Batch) -> Column:
        batch = self._without_lists(batch)
        failures: dict[int, Exception] = {}
        rows: list[Any] = [None] * batch.size
        for positions, part in batch.groups(sorted(self.keys)):
            try:
                stacked = self._stacked(part)
            except RowsFailed as error:
                failures.update((int(positions[row]), reason) for row, reason in error.failures.items())
            except DataError as error:
                failures.update(dict.fromkeys(positions.tolist(), error))
            else:
                for position, row in zip(positions.tolist(), stacked, strict=True):
                    rows[position] = row
        if failures:
            raise RowsFailed(failures)
        return Column.of(rows)

    def _without_lists(self, batch: Batch) -> Batch:
        """Lists of numbers as arrays. Raises `RowsFailed` for values that hold no numbers."""
        failures: dict[int, Exception] = {}
        columns: dict[str, Column] = {}
        fields = dict.fromkeys(feature.field for feature in self._features if feature.one_hot is None)
        for key in [field for field in fields if field in batch]:
            values = list(batch[key].values())
            kinds = set(map(type, values))
            for row, value in enumerate(values):
                try:
                    values[row] = _numbers_of(value, key)
                except DataError as error:
                    failures.setdefault(row, error)
            if any(issubclass(kind, list) for kind in kinds):
                columns[key] = Column.of(values)
        if failures:
            raise RowsFailed(failures)
        return batch.with_columns(columns)

    def _stacked(self, batch: Batch) -> Array:
        parts = [self._part(at, batch) for at in range(len(self._features))]
        if self._columns:
            parts = self._series(parts, batch)
        count = sum(part.shape[-1] for part in parts)
        if self._length is not None and count != self._length:
            text = f"{self._length} numbers are needed, not {count}: {self._lengths(parts)}"
            raise everyone(batch, WrongTypeError(text))
        # Integers each by themselves: beside a float64 an int64 would become one, and be rounded.
        fitted = list(map(self._fitted, parts if self._dtype.kind in "iu" else [np.concatenate(parts, axis=-1)]))
        misfits = [beyond for _, beyond in fitted if beyond is not None]
        if misfits and (wrong := np.any(misfits, axis=0)).any():
            raise RowsFailed({row: self._misfit(parts, row) for row in np.flatnonzero(wrong).tolist()})
        return np.concatenate([array for array, _ in fitted], axis=-1) if len(fitted) > 1 else fitted[0][0]

    def _series(self, parts: list[Array], batch: Batch) -> list[Array]:
        """The parts with equally many values each: a default stands for each value of a series that is not there."""
        counts = {
            part.shape[1]
            for feature, part in zip(self._features, parts, strict=True)
            if not _is_default(feature, batch)
        }
        if len(counts) == 1:
            (count,) = counts
            parts = [
                np.repeat(part, count, axis=1) if _is_default(feature, batch) and part.shape[1] == 1 else part
                for feature, part in zip(self._features, parts, strict=True)
            ]
        if len({part.shape[1] for part in parts}) > 1:
            raise WrongTypeError(f"the fields of a record hold different numbers of values: {self._lengths(parts)}")
        return parts

    def _fitted(self, numbers: Array) -> tuple[Array, Mask | None]:
        """The numbers in the element type, and in which rows one does not fit; `None`: in none."""
        if self._dtype.kind == "f" and numbers.dtype.kind in "iub":
            return numbers.astype(self._dtype), None
        fractions = _fractions(numbers) if self._dtype.kind in "iu" and numbers.dtype.kind == "f" else None
        converted, beyond = cast(numbers, self._dtype)
        return converted, fractions if beyond is None else beyond if fractions is None else fractions | beyond

    def _lengths(self, parts: Sequence[Array]) -> str:
        """How many numbers each field of a row holds."""
        return ", ".join(
            f"{feature.field} {part.shape[1]}" for feature, part in zip(self._features, parts, strict=True)
        )

    def _misfit(self, parts: Sequence[Array], row: int) -> DataError:
        """The error of a row in which a number does not fit the element type."""
        for feature, part in zip(self._features, parts, strict=True):
            for number in part[row].flat:
                single = np.array([number])
                fraction = self._dtype.kind in "iu" and single.dtype.kind == "f" and _fractions(single)[0]
                if fraction or cast(single, self._dtype)[1] is not None:
                    shown = f"{number:.6g}" if single.dtype.kind == "f" else number
                    return DataError(f'"{feature.field}" is {shown}, which does not fit {self._dtype}')
        return DataError(f"a value of {', '.join(sorted(self.keys))} does not fit {self._dtype}")

    def _part(self, at: int, batch: Batch) -> Array:
        """A feature of all rows, `(N, k)`, or `(N, k, 1)` with `columns`."""
        feature = self._features[at]
        values = self._values(feature, batch) if feature.one_hot is None else self._one_hot(at, batch)
        if values.dtype.kind not in "biuf":
            raise WrongTypeError(f'"{feature.field}" holds {values.dtype}, FEATURES takes numbers')
        if feature.scale != 1.0 or feature.offset:
            values = (values.astype(np.float64) - feature.offset) * feature.scale
        flat = values.reshape(len(values), -1 if len(values) else int(np.prod(values.shape[1:])))
        if feature.size not in (None, flat.shape[1]) and len(flat):
            raise WrongTypeError(f'"{feature.field}" has {flat.shape[1]} numbers, and its size is {feature.size}')
        return flat[:, :, np.newaxis] if self._columns else flat

    def _values(self, feature: Feature, batch: Batch) -> Array:
        column = _column(feature, batch)
        if column is None or (column.empty and feature.default is not None and feature.size is not None):
            return np.full((batch.size, feature.size or 1), feature.default)
        if _has_lists(column):
            raise WrongTypeError(f'the lists of "{feature.field}" are looked at one by one')
        if feature.default is None or column.mask is None:
            # A default that nobody needs must not change the type of the others, and so their digits.
            return column.array
        if not column.empty and column.type in (ValueType.NDARRAY, ValueType.LIST):
            # How long the arrays of other records are says nothing about one without.
            raise WrongTypeError(f'records lack the array "{feature.field}"')
        whole = feature.default.is_integer()
        return column.filled(int(feature.default) if whole else feature.default)

    def _one_hot(self, at: int, batch: Batch) -> Array:
        feature, places = self._features[at], self._places[at]
        default = np.nan if feature.default is None else feature.default
        column = _column(feature, batch)
        if column is None:
            return np.full((batch.size, len(places)), default)
        values = column.values()
        encoded = np.zeros((len(values), len(places)), np.float32)
        failures: dict[int, Exception] = {}
        for row, value in enumerate(values):
            place = places.get(_category(value)) if isinstance(value, CATEGORIES) else None
            if place is not None:
                encoded[row, place] = 1.0
            elif value is MISSING and feature.default is not None:
                encoded[row] = default
            elif feature.unknown == "fail" or not isinstance(value, CATEGORIES):
                failures[row] = _unknown(feature, value)
        if failures:
            raise RowsFailed(failures)
        return encoded


def _column(feature: Feature, batch: Batch) -> Column | None:
    """The decoded column of a feature; `None` where no row has it and there is a default. Raises `RowsFailed`."""
    if feature.default is None or feature.field in batch:
        column = batch[feature.field] if feature.default is not None else array_column(batch, feature.field)
        column = column.decoded()
        what = None if column.type is None else NO_NUMBERS.get(column.type)
        if feature.one_hot is None and what is not None:
            cells = list(column.cells({}))
            if not cells:
                # All rows lack the key, and those that had it were taken out.
                return None
            errors = {hint: _no_number(feature.field, what, hint) for hint in {_hint(cell) for _, cell in cells}}
            raise RowsFailed({row: errors[_hint(value)] for row, value in cells})
        return column
    return None


def _has_lists(column: Column) -> bool:
    """Whether there are lists that still have to be converted to arrays, of which empty ones are refused."""
    if isinstance(column, ListsColumn):
        return column.has_empty
    if isinstance(column, ObjectColumn) and column.type is None:
        return any(isinstance(value, list) for value in column.objects)
    return column.type is ValueType.LIST


def _is_default(feature: Feature, batch: Batch) -> bool:
    """Whether all rows get the default of a feature that is one number."""
    if feature.default is None or feature.one_hot is not None:
        return False
    return feature.field not in batch or batch[feature.field].decoded().empty


def _numbers_of(value: Any, key: str) -> Any:
    """A list of numbers as an array, any other value as it is. Raises `DataError` if it holds no numbers."""
    if isinstance(value, list):
        return list_to_array(value, key, exact=True)
    what = None if value is MISSING else NO_NUMBERS.get(type_of(value))
    if what is not None:
        raise _no_number(key, what, _hint(value))
    return value


def _no_number(field: str, what: str, hint: str) -> WrongTypeError:
    return WrongTypeError(f'"{field}" is {what}, and a number is needed{hint}')


def _hint(value: object) -> str:
    """The hint of the error about a value that is not a number."""
    if not isinstance(value, str):
        return ""
    try:
        float(value)
    except ValueError:
        return "; oneHot: [...] makes numbers of categories"
    return (
        "; it looks like a number: have it sent as one, or make it one in a FUNCTION step before this one (from CSV: "
        "`types` of the codec)"
    )


def _places(feature: Feature) -> Mapping[str, int]:
    return {_category(category): place for place, category in enumerate(feature.one_hot or ())}


def _category(value: str | bool | int | float) -> str:
    """A category as text, by which categories are compared: YAML reads `3` and `true` as a number and a bool."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _unknown(feature: Feature, value: Any) -> StreamerError:
    if not isinstance(value, CATEGORIES):
        what = _NO_CATEGORIES.get(type_of(value), f"of type {type_of(value).name}")
        return WrongTypeError(f'"{feature.field}" is {what}, which is not a category')
    known = [_category(category) for category in feature.one_hot or ()]
    shown = _category(value)[:100]
    return DataError(
        f'"{feature.field}" is {shown!r}, which is not one of {", ".join(known[:20])}{nearest(shown, known)}; '
        "add it to oneHot, or set unknown: zeros"
    )


def _fractions(array: Array) -> Mask:
    whole = np.isfinite(array) & (np.floor(array) == array)
    misfits: Mask = np.any(~whole.reshape(len(array), -1), axis=1)
    return misfits
