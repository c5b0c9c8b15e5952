"""Runs CLASSIFIER_OUTPUT."""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.data.batch import Batch
from pipelines.data.columns import Column, DenseColumn, ObjectColumn
from pipelines.data.result import Result
from pipelines.data.spans import Spans
from pipelines.data.spanscolumn import SpansColumn
from pipelines.errors import DataError, RowsFailed
from pipelines.observe.metrics import LABELS
from pipelines.runners.models.arrays import array_column
from pipelines.runners.models.matrices import Matrix, by_row, matrices, put_together
from pipelines.runners.runner import OpenContext, Runner
from pipelines.steps.models.classifier import ClassifierOutput
from pipelines.values import ValueType
from pipelines.wire.owndigits import digits_of

Indexes: TypeAlias = npt.NDArray[np.intp]

ALL_PROBABILITIES = "allProbabilities"
FEW_CLASSES = 128
_SLACK: Final = 0.01
"""Probabilities may be out of range by so much: float16 and quantised models round."""
_log = logging.getLogger(__name__)


class ClassifierOutputRunner(Runner):
    """Adds probability (DOUBLE), index (INT64) and label (STRING) of the first maximum to each record.

    A record with `[C]` or `[1, C]` gets single values, one with `[k, C]` lists of k. With `top_n` above 1 single values
    come as lists of one element. `allProbabilities` is a float64 array `[C]`, or a list of k of them.
    Fails a row whose array has another shape or a class index without a label.
    """

    opens_images: ClassVar[bool] = False
    keeps_rows: ClassVar[bool] = True
    keeps_keys: ClassVar[bool] = True
    needs_all: ClassVar[bool] = True

    def __init__(self, step: ClassifierOutput, context: OpenContext) -> None:
        self._step = step
        self._counts = context.metrics.labels(LABELS, "Samples that were classified so.")
        self._single = (lambda value: [value]) if (step.top_n or 0) > 1 else None
        self._name = context.step or step.type_name
        self._spans: dict[int, Spans | None] = {}
        """The labels by their count, which differs only where they are numbers."""
        self._doubted = False

    @property
    def reads(self) -> frozenset[str] | None:
        return None if self._step.input_name is None else frozenset([self._step.input_name])

    @property
    def gives(self) -> frozenset[str] | None:
        step = self._step
        written = {
            step.prob_name: step.return_prob,
            step.index_name: step.return_index,
            step.label_name: step.return_label,
            ALL_PROBABILITIES: step.all_probabilities,
        }
        return frozenset(key for key, wanted in written.items() if wanted)

    @property
    def sample_types(self) -> Mapping[str, ValueType]:
        step, given = self._step, self.gives or ()
        if self._single is not None:
            # They are lists, of a record of one sample too.
            return {}
        types = {step.prob_name: ValueType.DOUBLE, step.index_name: ValueType.INT64, step.label_name: ValueType.STRING}
        return {key: kind for key, kind in types.items() if key in given}

    def limit(self, records: int) -> bool:
        return True

    def run_batch(self, batch: Batch) -> Result:
        column = array_column(batch, self._step.input_name)
        parts = matrices(column, self._step.input_name)
        classified: list[tuple[Indexes, Sequence[str]]] = []

        def classify(part: Matrix) -> dict[str, Column]:
            part = self._activated(part)
            index = part.samples.argmax(axis=1)
            highest = part.samples[np.arange(len(index)), index]
            self._doubt(highest)
            classified.append((index, self._step.labels or _numbers(part.samples.shape[1])))
            return self._classified(part, index, highest)

        result = Result(batch.with_columns(put_together(parts, batch.size, classify)))
        # Counted only when no part failed: otherwise parts of the batch are run again, and would be counted twice.
        for index, labels in classified:
            self._count(index, labels)
        return result

    def _activated(self, part: Matrix) -> Matrix:
        if self._step.activation == "NONE":
            return part
        # Integers are logits of a quantised model.
        samples = part.samples.astype(np.result_type(part.samples.dtype, np.float32), copy=False)
        # Infinite where a number overflows, which is what the limit of the formula takes.
        with np.errstate(over="ignore"):
            if self._step.activation == "SIGMOID":
                return replace(part, samples=1 / (1 + np.exp(-samples)))
            powers = np.exp(samples - samples.max(axis=1, keepdims=True))
        return replace(part, samples=powers / powers.sum(axis=1, keepdims=True))

    def _doubt(self, highest: npt.NDArray[Any]) -> None:
        """Warn, once, of a highest number that is no probability: it comes out as one."""
        if self._doubted or not (self._step.return_prob or self._step.all_probabilities):
            return
        outside = ~((highest >= -_SLACK) & (highest <= 1 + _SLACK))
        if outside.any():
            self._doubted = True
            _log.warning(
                "%s: %.6g is no probability of a class: if the model gives logits, set activation: SOFTMAX",
                self._name,
                highest[outside][0],
            )

    def _count(self, index: Indexes, labels: Sequence[str]) -> None:
        times = np.bincount(index)
        # Looking for those that occur takes longer than looking at each, unless there are many.
        if len(times) > FEW_CLASSES:
            seen = np.flatnonzero(times)
            counted = zip(seen.tolist(), times[seen].tolist(), strict=True)
        else:
            counted = zip(range(len(times)), times.tolist(), strict=True)
        for number, count in counted:
            if count:
                # A label is only missing where none was asked for.
                self._counts.add(labels[number] if number < len(labels) else str(number), count)

    def _classified(self, part: Matrix, index: Indexes, highest: npt.NDArray[Any]) -> dict[str, Column]:
        step = self._step
        samples = part.samples
        columns: dict[str, Column] = {}
        if step.return_prob:
            prob = highest.astype(np.float64)
            columns[step.prob_name] = self._column(part, prob, ValueType.DOUBLE).with_digits(digits_of(samples))
        if step.return_index:
            columns[step.index_name] = self._column(part, index.astype(np.int64, copy=False), ValueType.INT64)
        if step.return_label:
            columns[step.label_name] = self._labels(part, index)
        if step.all_probabilities:
            columns[ALL_PROBABILITIES] = _all_probabilities(part)
        return columns

    def _column(self, part: Matrix, values: np.ndarray[Any, Any], kind: ValueType) -> Column:
        if part.splits is None and self._single is None:
            return DenseColumn(values, kind)
        return by_row(part, values.tolist(), kind, self._single)

    def _labels(self, part: Matrix, index: Indexes) -> Column:
        labels = self._step.labels or _numbers(part.samples.shape[1])
        if len(index) and index.max() >= len(labels):
            raise self._unlabelled(part, index.tolist())
        plain = part.splits is None and self._single is None
        if plain and len(labels) not in self._spans:
            self._spans[len(labels)] = _spans(labels)
        if plain and (spans := self._spans[len(labels)]) is not None:
            return SpansColumn(spans.take(index), ValueType.STRING)
        names = list(map(labels.__getitem__, index.tolist()))
        return ObjectColumn(names, ValueType.STRING) if plain else by_row(part, names, ValueType.STRING, self._single)

    def _unlabelled(self, part: Matrix, index: list[int]) -> RowsFailed:
        labels = self._step.labels or ()
        return RowsFailed(
            {
                part.position(sample): DataError(
                    f"the class index {class_index} has no label: {len(labels)} labels are given, "
                    f"the array has {part.samples.shape[1]} classes"
                )
                for sample, class_index in enumerate(index)
                if class_index >= len(labels)
            }
        )


def _spans(labels: Sequence[str]) -> Spans | None:
    """The labels in one buffer, of which the compiled hot path makes texts of a batch; `None` without that."""
    try:
        spans = Spans.of([label.encode() for label in labels])
    except UnicodeEncodeError:
        return None
    return None if spans.extension() is None else spans


@functools.lru_cache(maxsize=64)
def _numbers(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))


def _all_probabilities(part: Matrix) -> Column:
    wide, digits = part.samples.astype(np.float64), digits_of(part.samples)
    if part.splits is None:
        return DenseColumn(wide).with_digits(digits)
    wide.flags.writeable = False
    return by_row(part, list(wide), ValueType.NDARRAY).with_digits(digits)
