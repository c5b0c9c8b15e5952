"""Runs a model over whole batches, whichever library holds it."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import Column, DenseColumn, ObjectColumn, RaggedColumn
from pipelines.data.data import check_key
from pipelines.data.result import Result
from pipelines.errors import DataError, ReservedKeyError, StreamerError, blamed
from pipelines.executors.lastshapes import Call, StepShapes
from pipelines.executors.ports import Ports
from pipelines.observe.metrics import StepMetrics
from pipelines.runners.forms import ArrayForm, Forms
from pipelines.runners.models.fixedbatch import FixedBatch, made_up, of_any_count
from pipelines.runners.models.model import Array, Model, Port
from pipelines.runners.models.modelinput import ModelInput
from pipelines.runners.models.modelinputs import Feed, ModelInputs
from pipelines.runners.runner import Runner

_SHOWN: Final = 300
"""Characters of a library's error."""

_log = logging.getLogger(__name__)


class ModelRunner(Runner):
    """Feeds the arrays of all records to the model in one call; the result holds the model's outputs only.

    `input_keys` are the keys of the data that the model's inputs are taken from, `output_keys` those its outputs are
    put under, both in the model's order. A model with one input also takes the only array of a record that lacks that
    key, which is Konduit's usual way to name things.

    *Samples.* The first axis of all inputs and outputs is the batch. A record with an array of the model's rank brings
    k samples and gets `[k, ...]` back, one of a rank less brings one and gets `[...]`; `ModelInput` has the details.
    Inputs of one record must bring equally many.

    *A fixed batch.* If all inputs and outputs state the same first length N above 1, calls have N samples, the last one
    filled up (`fixedbatch.of_any_count`).

    *One by one.* Records run alone, and an output is theirs as it is, if the model has no batch axis: the first length
    of an input or output is fixed, an input's rank is not known, or a trial with two samples of zeros fails where one
    does not, or gives an output of another length than two. The trial is made when the model opens, or with the first
    batch where shapes are not known before. An output of another length than its input, met later, has the same
    effect. A record without a sample axis still gets its outputs without one where the model states a length of 1 or
    the inputs' own symbol there.

    *Warming up.* If `shapes` know what another model of the step ran on last, the model is run on zeros of these shapes
    when it opens. `StreamerError` if it takes neither these nor random values, and the other one did.

    Strings come out as STRING, or as lists of them. `close` frees the model, which is the runner's own.
    """

    opens_images: ClassVar[bool] = False

    def __init__(
        self,
        model: Model,
        input_keys: Sequence[str],
        output_keys: Sequence[str],
        *,
        warm_up: int = 0,
        max_batch: int | None = None,
        cast_inputs: bool = False,
        keep: bool = False,
        metrics: StepMetrics | None = None,
        shapes: StepShapes | None = None,
    ) -> None:
        self.keeps_keys = keep  # type: ignore[misc]
        self.model = model
        self._called = of_any_count(model)
        self._max_batch = max_batch
        self._most_records: int | None = None
        for key in output_keys:
            _check_output(key)
        self._keys = output_keys
        named = zip(self._called.inputs, input_keys, strict=True)
        self._inputs = ModelInputs([ModelInput(port, key, cast_freely=cast_inputs) for port, key in named])
        self._batched = _states_batch_axis(self._called)
        self._tried = False
        self._names = tuple(port.name for port in model.inputs)
        self._shapes = StepShapes() if shapes is None else shapes
        self._noted: list[tuple[int, ...]] = []
        """The shapes of the last batch, as making a `Call` costs more than a look at them."""
        before, required = self._shapes.last, self._shapes.required
        if before is not None and before.names != self._names:
            before = None
        inner = [shape for model_input in self._inputs.inputs if (shape := model_input.inner) is not None]
        if len(inner) < len(model.inputs) and before is not None and before.whole:
            inner = [shape[1:] for shape in before.shapes]
        if len(inner) == len(model.inputs):
            if self._batched:
                self._try_batch(inner)
            self._warm_up(warm_up, inner)
        if before is not None:
            self._warm_up_on(before, required=required)
        # Now, so that trials do not count.
        if metrics is not None and isinstance(self._called, FixedBatch):
            self._called.count_in(metrics)

    @property
    def fixed_batch(self) -> int | None:
        """How many samples each call of the model has, where it states that; the last call is filled up."""
        return self._called.count if isinstance(self._called, FixedBatch) else None

    @property
    def reads(self) -> frozenset[str] | None:
        return self._inputs.keys

    @property
    def needs(self) -> frozenset[str]:
        return self._inputs.needed

    @property
    def gives(self) -> frozenset[str] | None:
        return frozenset(self._keys)

    def ports(self) -> Ports:
        inputs = [replace(item.port, name=item.key) for item in self._inputs.inputs]
        outputs = [replace(port, name=key) for port, key in zip(self._called.outputs, self._keys, strict=True)]
        return Ports(tuple(inputs), (), tuple(outputs))

    def forms(self, given: Forms) -> Forms:
        outputs = output_forms(self.model, self._keys)
        if not self.keeps_keys:
            return outputs
        return {**{key: form for key, form in given.items() if key not in self._keys}, **outputs}

    def misfit(self, given: Forms, possible: Collection[str] | None) -> str | None:
        return self._inputs.misfit(given, possible)

    def run_batch(self, batch: Batch) -> Result:
        if self._batched:
            feed = self._inputs.together(batch)
            columns = self._outputs(feed) if feed is not None else self._outputs_by_group(batch)
            if columns is not None:
                return Result(self._with(columns, batch))
        return self._run_alone(batch)

    def limit(self, records: int) -> bool:
        self._most_records = records
        return True

    def close(self) -> None:
        self.model.close()

    def _outputs(self, feed: Feed) -> dict[str, Column] | None:
        if not self._tried:
            self._try_batch([array.shape[1:] for array in feed.arrays])
            if not self._batched:
                return None
        outputs = self._run(feed)
        if outputs is None:
            return None
        return {key: _column(output, feed) for key, output in zip(self._keys, outputs, strict=True)}

    def _outputs_by_group(self, batch: Batch) -> dict[str, Column] | None:
        values: list[list[Any]] = [[None] * batch.size for _ in self._keys]
        for rows, feed in self._inputs.groups(batch):
            columns = self._outputs(feed)
            if columns is None:
                return None
            if len(rows) == batch.size:
                return columns
            for listed, column in zip(values, columns.values(), strict=True):
                for row, value in zip(rows, column.values(), strict=True):
                    listed[row] = value
        return {key: Column.of(listed) for key, listed in zip(self._keys, values, strict=True)}

    def _run(self, feed: Feed) -> list[Array] | None:
        most = self._most(feed)
        parts: list[list[Array]] = []
        # A batch of no samples is one call too: outputs have types and shapes.
        for start in range(0, feed.total, most) if feed.total else (0,):
            arrays = feed.arrays if most >= feed.total else [array[start : start + most] for array in feed.arrays]
            outputs = self._called.run(arrays)
            # Of every call, so that lengths which only add up by chance are not taken for the batch.
            if not self._as_long(len(arrays[0]), outputs):
                return None
            parts.append(outputs)
            shapes = [array.shape for array in arrays]
            if shapes != self._noted:
                self._noted = shapes
                self._shapes.last = Call(self._names, shapes, True)
        return parts[0] if len(parts) == 1 else [np.concatenate(pieces) for pieces in zip(*parts, strict=True)]

    def _most(self, feed: Feed) -> int:
        """The maximum number of samples in one call."""
        most = self._max_batch or feed.total
        if self._most_records is None or feed.records <= self._most_records:
            return most
        return min(most, self._most_records * max(1, -(-feed.total // feed.records)))

    def _as_long(self, count: int, outputs: list[Array]) -> bool:
        for port, output in zip(self._called.outputs, outputs, strict=True):
            if not output.ndim or len(output) != count:
                self._go_alone(f'{count} samples gave an output "{port.name}" of the shape {list(output.shape)}')
                return False
        return True

    def _run_alone(self, batch: Batch) -> Result:
        values: list[list[Any]] = [[] for _ in self._keys]
        failed: dict[int, Exception] = {}
        done: list[int] = []
        for row, parts in enumerate(self._inputs.each(batch)):
            try:
                if isinstance(parts, DataError):
                    raise parts
                outputs = self._called.run([part.array for part in parts])
            except Exception as error:  # noqa: BLE001 - one record runs, so it is that record's failure
                failed.update(dict.fromkeys(batch.parents(row).tolist(), blamed(error)))
                continue
            if not done:
                self._shapes.last = Call(self._names, [part.array.shape for part in parts], False)
            done.append(row)
            lead = self._inputs.lead(parts)
            for listed, port, output in zip(values, self._called.outputs, outputs, strict=True):
                listed.append(_native(output if lead else self._less_batch_axis(output, port)))
        columns = {key: Column.of(listed) for key, listed in zip(self._keys, values, strict=True)}
        return Result(self._with(columns, batch.take(np.array(done, np.int64)) if failed else batch), failed)

    def _with(self, columns: dict[str, Column], batch: Batch) -> Batch:
        """The outputs of the rows of a batch, and their other values if they are kept."""
        return batch.with_columns(columns) if self.keeps_keys else batch.select(columns)

    def _less_batch_axis(self, output: Array, port: Port) -> Array:
        if not output.ndim or len(output) != 1 or not port.shape:
            return output
        symbols = {port.shape[0] for port in self._called.inputs if port.shape and isinstance(port.shape[0], str)}
        return output[0, ...] if port.shape[0] == 1 or port.shape[0] in symbols else output

    def _try_batch(self, inner: Sequence[tuple[int, ...]]) -> None:
        self._tried = True
        try:
            outputs = self._called.run(self._zeros(2, inner))
        except Exception as error:  # noqa: BLE001 - zeros may be no input for this model
            if self._runs_single(inner):
                self._go_alone(f"it takes one sample, not two ({error})")
            return
        self._as_long(2, outputs)

    def _runs_single(self, inner: Sequence[tuple[int, ...]]) -> bool:
        try:
            self._called.run(self._zeros(1, inner))
        except Exception:  # noqa: BLE001 - then zeros tell nothing about two samples
            self._shapes.required = False
            return False
        return True

    def _zeros(self, count: int, inner: Sequence[tuple[int, ...]]) -> list[Array]:
        return [model_input.zeros(count, shape) for model_input, shape in zip(self._inputs.inputs, inner, strict=True)]

    def _go_alone(self, reason: str) -> None:
        _log.info("%s: records run one by one: %s", self.model.path, reason)
        self._batched = False

    def _warm_up(self, count: int, inner: Sequence[tuple[int, ...]]) -> None:
        if not count:
            return
        try:
            self._called.run(self._zeros(count if self._batched else 1, inner))
        except Exception as error:  # noqa: BLE001 - zeros may be no input for this model
            _log.info("%s: warming up with zeros failed: %s", self.model.path, error)

    def _warm_up_on(self, call: Call, *, required: bool) -> None:
        """Run it on what another model ran on. `required`: it is refused if it cannot be."""
        ports, shapes = self._called.inputs, call.shapes
        if any(port.dtype.kind == "O" or (port.shape is None and call.whole) for port in ports):
            return
        if call.whole and not self._batched:
            shapes = [(1, *shape[1:]) for shape in shapes]
        random = np.random.default_rng(0)
        sized = [*zip(ports, shapes, strict=True)]
        try:
            arrays = [np.zeros(shape, port.dtype) for port, shape in sized]
            try:
                self._called.run(arrays)
            except Exception:  # noqa: BLE001 - zeros may be no input for this model
                arrays = [made_up(port, shape, random) for port, shape in sized]
                self._called.run(arrays)
            # onnxruntime plans its memory in the first call of a shape, and takes it in the second.
            outputs = self._called.run(arrays)
        except Exception as error:
            if not required:
                _log.info("%s: warming up failed: %s", self.model.path, error)
                return
            self.model.close()
            said = ", ".join(f'"{port.name}" {list(shape)}' for port, shape in sized)
            raise StreamerError(
                f"{self.model.path} cannot be run on arrays as the version in use gets, {said}: {_in_short(error)}; "
                "restart with it if records change, too"
            ) from error
        if self._batched:
            self._as_long(shapes[0][0], outputs)


def output_forms(model: Model, keys: Sequence[str]) -> Forms:
    """The forms of a model's outputs under these keys: shapes that models state are not always those they give."""
    named = zip(keys, model.outputs, strict=True)
    return {key: ArrayForm(port.dtype) for key, port in named if port.dtype.kind != "O"}


def _in_short(error: Exception) -> str:
    return " ".join(str(error).split())[:_SHOWN].rstrip(".")


def _check_output(key: str) -> None:
    try:
        check_key(key)
    except ReservedKeyError as error:
        raise ReservedKeyError(f"{error}; outputNames as a mapping gives the model's output another key") from None


def _states_batch_axis(model: Model) -> bool:
    """Whether all inputs, and all outputs of known rank, begin with an axis whose length is open."""
    if not model.inputs or any(port.shape is None for port in model.inputs):
        return False
    return not any(
        port.shape is not None and isinstance(port.shape[0], int) for port in [*model.inputs, *model.outputs]
    )


def _column(output: Array, feed: Feed) -> Column:
    if output.dtype == object:
        return ObjectColumn(_strings(output, feed))
    if not feed.lead:
        return DenseColumn(output)
    if feed.splits is not None:
        return RaggedColumn(output, feed.splits)
    return DenseColumn(output.reshape((feed.records, feed.count, *output.shape[1:])))


def _strings(output: Array, feed: Feed) -> list[Any]:
    samples: list[Any] = output.tolist()
    if not feed.lead:
        return samples
    splits = range(0, feed.total + 1, feed.count) if feed.splits is None else feed.splits.tolist()
    return [samples[start:end] for start, end in itertools.pairwise(splits)]


def _native(output: Array) -> Any:
    return output.tolist() if output.dtype == object else output
