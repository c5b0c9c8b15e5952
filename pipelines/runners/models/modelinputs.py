"""All inputs of a model: gathering the samples of a batch's records."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.data.batch import Batch
from pipelines.data.columns import MISSING, Column, Rows
from pipelines.errors import DataError, RowsFailed
from pipelines.runners.forms import ArrayForm, Forms
from pipelines.runners.models.arrays import array_keys, everyone, lacking, missing, only_array
from pipelines.runners.models.modelinput import ModelInput, Samples

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Feed:
    """Records that go through the model together."""

    arrays: list[Array]
    """One an input, `(total, ...)` each."""
    records: int
    count: int
    """Samples of each record; -1 where `splits` says."""
    lead: bool
    """Whether the records have a sample axis, so that their results get one."""
    splits: Rows | None

    @property
    def total(self) -> int:
        """The number of samples of all records."""
        return len(self.arrays[0])


class ModelInputs:
    """The inputs of one model, in its order.

    A single input also takes the only array of a record that lacks its key.
    """

    def __init__(self, inputs: Sequence[ModelInput]) -> None:
        self.inputs = inputs

    @property
    def keys(self) -> frozenset[str]:
        """The keys of the data that are read, but for that only array."""
        return frozenset(model_input.key for model_input in self.inputs)

    @property
    def needed(self) -> frozenset[str]:
        """The keys that a record must have: of several inputs all, while a single one takes another array, too."""
        return self.keys if len(self.inputs) > 1 else frozenset()

    def misfit(self, given: Forms, possible: Collection[str] | None) -> str | None:
        """Why every record with arrays of the forms `given` fails; `None` if that is not sure.

        `possible` are all keys that records may have, `None` if these are not known.
        """
        arrays = {key: form for key, form in given.items() if isinstance(form, ArrayForm)}
        if len(self.inputs) == 1 and possible is not None and self.inputs[0].key not in possible and len(arrays) == 1:
            ((key, form),) = arrays.items()
            return self.inputs[0].misfit(form, key)
        texts = (item.misfit(arrays[item.key], item.key) for item in self.inputs if item.key in arrays)
        return next((text for text in texts if text is not None), None)

    def together(self, batch: Batch) -> Feed | None:
        """All records at once if their columns allow it, without a look at each. Raises `RowsFailed`."""
        parts: list[Samples] = []
        for model_input in self.inputs:
            column = self._column(model_input, batch)
            part = None if column is None else model_input.of_column(column)
            if part is None:
                return None
            parts.append(part)
        first = parts[0]
        lead = first.lead
        if len(parts) > 1:
            lead = self.lead(parts)
            if any(part.splits is not None for part in parts) and not _same_splits(parts):
                return None
            if error := self.disagreement(parts):
                raise everyone(batch, error)
        arrays = [part.array for part in parts]
        return Feed(arrays, batch.size, first.count, lead, first.splits)

    def groups(self, batch: Batch) -> Iterator[tuple[list[int], Feed]]:
        """Records that can go together, with their positions: of equal rank and shape. Raises `RowsFailed`."""
        groups: dict[tuple[Any, ...], tuple[list[int], list[list[Samples]]]] = {}
        failures: dict[int, Exception] = {}
        for row, parts in enumerate(self.each(batch)):
            if isinstance(parts, DataError):
                failures[row] = parts
            elif error := self.disagreement(parts):
                failures[row] = error
            else:
                kind = (self.lead(parts), *(part.array.shape[1:] for part in parts))
                rows, members = groups.setdefault(kind, ([], []))
                rows.append(row)
                members.append(parts)
        if failures:
            raise RowsFailed(failures)
        for rows, members in groups.values():
            yield rows, _stacked(members, lead=self.lead(members[0]))

    def each(self, batch: Batch) -> Iterator[list[Samples] | DataError]:
        """The inputs of each record, or why the model does not take it. Raises `RowsFailed`."""
        for row, values in enumerate(self._values(batch)):
            try:
                yield [item.of_value(self._value(item, values, batch, row)) for item in self.inputs]
            except DataError as error:
                yield error

    def lead(self, parts: Sequence[Samples]) -> bool:
        """Whether the record has a sample axis.

        In any input that has a batch axis, else in any whose rank is known, or if none is.
        """
        ranked = [
            (item.port.shape, part.lead) for item, part in zip(self.inputs, parts, strict=True) if item.port.shape
        ]
        batched = [lead for shape, lead in ranked if not isinstance(shape[0], int)]
        return any(batched or [lead for _, lead in ranked]) or not ranked

    def disagreement(self, parts: Sequence[Samples]) -> DataError | None:
        """The error of a record whose inputs bring different numbers of samples, `None` if they agree."""
        counts = [part.count for part in parts]
        if min(counts) == max(counts):
            return None
        said = ", ".join(f'"{item.port.name}" {count}' for item, count in zip(self.inputs, counts, strict=True))
        return DataError(f"the inputs bring different numbers of samples: {said}; one record's must agree")

    def _column(self, model_input: ModelInput, batch: Batch) -> Column | None:
        if model_input.key in batch:
            return batch[model_input.key]
        if len(self.inputs) > 1:
            failures = lacking(model_input.key, batch, range(batch.size)).failures
            raise RowsFailed({row: _unfilled(model_input, error) for row, error in failures.items()})
        return only_array(batch)

    def _values(self, batch: Batch) -> Iterator[Mapping[str, Any]]:
        only = self.inputs[0] if len(self.inputs) == 1 else None
        keys = [model_input.key for model_input in self.inputs if model_input.key in batch]
        if only is not None and (not keys or batch.column(only.key).mask is not None):
            return iter(batch.all_values())
        listed = [batch[key].values() for key in keys]
        if not listed:
            return iter([{} for _ in range(batch.size)])
        return (dict(zip(keys, row, strict=True)) for row in zip(*listed, strict=True))

    def _value(self, model_input: ModelInput, values: Mapping[str, Any], batch: Batch, row: int) -> Any:
        value = values.get(model_input.key, MISSING)
        if value is not MISSING:
            return value
        keys = array_keys(values) if len(self.inputs) == 1 else []
        if len(keys) == 1:
            return values[keys[0]]
        error = missing(model_input.key, batch, row)
        if keys:
            error = type(error)(
                f"{error}; a record's only array would be taken for it, but it has several: {', '.join(keys)}"
            )
        raise _unfilled(model_input, error)


def _unfilled(model_input: ModelInput, error: Exception) -> Exception:
    """The same error, with the type and shape of the input."""
    return type(error)(f'{error}; the model\'s input "{model_input.port.name}" takes {model_input.port}')


def _same_splits(parts: Sequence[Samples]) -> bool:
    first = parts[0].splits
    return first is not None and all(
        part.splits is not None and np.array_equal(part.splits, first) for part in parts[1:]
    )


def _stacked(members: Sequence[Sequence[Samples]], *, lead: bool) -> Feed:
    first = members[0]
    arrays = [np.concatenate([parts[index].array for parts in members]) for index in range(len(first))]
    counts = [parts[0].count for parts in members]
    if min(counts) == max(counts):
        return Feed(arrays, len(members), counts[0], lead, None)
    splits = np.zeros(len(members) + 1, np.int64)
    np.cumsum(counts, out=splits[1:])
    return Feed(arrays, len(members), -1, lead, splits)
