"""Runs ONNX: a model in onnxruntime."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import TypedDict

import numpy as np

from pipelines.data.batch import Batch
from pipelines.data.columns import Column, Rows
from pipelines.data.result import Result
from pipelines.errors import RowsFailed, StreamerError, nearest
from pipelines.executors.ports import Ports
from pipelines.observe.metrics import StepMetrics
from pipelines.runners.forms import Forms
from pipelines.runners.models.features import FeatureStack
from pipelines.runners.models.model import Port
from pipelines.runners.models.modelinput import ModelInput
from pipelines.runners.models.modelinputs import ModelInputs
from pipelines.runners.models.modelrunner import ModelRunner
from pipelines.runners.models.onnxmodel import OnnxModel
from pipelines.runners.runner import OpenContext
from pipelines.steps.models.features import Feature
from pipelines.steps.models.onnx import Onnx


class _Options(TypedDict):
    max_batch: int | None
    cast_inputs: bool
    keep: bool
    metrics: StepMetrics


class OnnxRunner(ModelRunner):
    """`ModelRunner` on onnxruntime. Inputs are taken by the model's names; mappings rename inputs and outputs.

    Values that an input is made of are stacked first. Optional inputs that no mapping names are fed by the records that
    have a value of their name; the other records of a batch run by themselves, with the model's own value.
    """

    def __init__(self, step: Onnx, context: OpenContext) -> None:
        model = OnnxModel(step, context)
        try:
            self._prepare(step, model, context)
        except BaseException:
            model.close()
            raise

    def _prepare(self, step: Onnx, model: OnnxModel, context: OpenContext) -> None:
        inputs, outputs = input_keys(step, model), output_keys(step, model)
        options: _Options = {
            "max_batch": step.max_batch,
            "cast_inputs": step.cast_inputs,
            "keep": step.keep_other_values,
            "metrics": context.metrics,
        }
        shapes = context.ran.of(context.step)
        super().__init__(model, inputs, outputs, warm_up=int(step.warm_up), shapes=shapes, **options)
        self._optional = model.further
        self._further = frozenset(model.further)
        self._runners: dict[tuple[str, ...], ModelRunner] = {}

        def fed_with(names: Sequence[str]) -> ModelRunner:
            return ModelRunner(model.with_inputs(names), [*inputs, *names], outputs, **options)

        self._fed_with = fed_with
        self._stacks = stacks_of(step, model)
        self._misfit = partial(misfit, step, model)
        self._needs = needed_keys(step, model)

    @property
    def reads(self) -> frozenset[str] | None:
        keys = super().reads
        if keys is None:
            return keys
        stacked = (stack.keys for stack in self._stacks.values())
        return frozenset(keys - self._stacks.keys()).union(self._further, *stacked)

    @property
    def needs(self) -> frozenset[str]:
        return self._needs

    def ports(self) -> Ports:
        ports = super().ports()
        optional = tuple(self._optional[name] for name in sorted(self._further))
        # Values that an input is stacked from are no arrays of its own form.
        return Ports(None if self._stacks else ports.inputs, optional, ports.outputs)

    def misfit(self, given: Forms, possible: Collection[str] | None) -> str | None:
        return self._misfit(given, possible)

    def run_batch(self, batch: Batch) -> Result:
        if self._stacks:
            batch = batch.with_columns({name: self._stacked(name, batch) for name in self._stacks})
        there = sorted(self._further & batch.columns.keys()) if self._further else []
        result = self._by_inputs(batch, there) if there and batch.size else super().run_batch(batch)
        if self._stacks and self.keeps_keys:
            result.batch = result.batch.without(self._stacks.keys() - set(self._keys))
        return result

    def limit(self, records: int) -> bool:
        for runner in self._runners.values():
            runner.limit(records)
        return super().limit(records)

    def _by_inputs(self, batch: Batch, names: list[str]) -> Result:
        """Run the rows that feed the same of these optional inputs together."""
        present = np.stack([batch[name].present for name in names])
        kinds, kind_of = np.unique(present, axis=1, return_inverse=True)
        sets = [[name for name, has in zip(names, kind, strict=True) if has] for kind in kinds.T.tolist()]
        if len(sets) == 1:
            return self._fed(sets[0], batch)
        parts: list[Batch] = []
        places: list[Rows] = []
        failures: dict[int, Exception] = {}
        for kind, fed in enumerate(sets):
            rows = np.flatnonzero(kind_of.ravel() == kind)
            try:
                result = self._fed(fed, batch.take(rows))
            except RowsFailed as error:
                failures.update({int(rows[row]): failure for row, failure in error.failures.items()})
                continue
            for row in rows.tolist() if result.failed else ():
                errors = [result.failed[parent] for parent in batch.parents(row).tolist() if parent in result.failed]
                if errors:
                    failures[row] = errors[0]
            parts.append(result.batch)
            places.append(rows)
        if failures:
            raise RowsFailed(failures)
        return Result(Batch.concat(parts).take(np.argsort(np.concatenate(places))))

    def _fed(self, names: Sequence[str], part: Batch) -> Result:
        if not names:
            return super().run_batch(part)
        runner = self._runners.get(tuple(names))
        if runner is None:
            runner = self._runners[tuple(names)] = self._fed_with(names)
            if self._most_records is not None:
                runner.limit(self._most_records)
        return runner.run_batch(part)

    def _stacked(self, name: str, batch: Batch) -> Column:
        try:
            return self._stacks[name].of(batch)
        except RowsFailed as error:
            port = next(port for port in self.model.inputs if port.name == name)
            errors = {
                id(failure): type(failure)(f'input "{name}" takes {port}: {failure}')
                for failure in error.failures.values()
            }
            raise RowsFailed({row: errors[id(failure)] for row, failure in error.failures.items()}) from None


def input_keys(step: Onnx, model: OnnxModel) -> list[str]:
    """The keys of the data that each input is taken from. Raises `StreamerError` for an input that the model lacks."""
    names = [port.name for port in model.inputs]
    keys = dict(step.input_names) if isinstance(step.input_names, dict) else {}
    keys.update({name: source if isinstance(source, str) else name for name, source in (step.inputs or {}).items()})
    for name in keys:
        if name not in names:
            near = nearest(name, [*names, *model.optional])
            raise StreamerError(f'{model.path}: the model has no input "{name}"{near}; it has {", ".join(names)}')
    return [keys.get(name, name) for name in names]


def output_keys(step: Onnx, model: OnnxModel) -> list[str]:
    """The keys under which each output is put."""
    renamed = step.output_names if isinstance(step.output_names, dict) else {}
    return [renamed.get(port.name, port.name) for port in model.outputs]


def needed_keys(step: Onnx, model: OnnxModel) -> frozenset[str]:
    """The keys without which a record is sure to fail: a model with one input also takes a record's only array."""
    stacks = stacks_of(step, model)
    keys = zip((port.name for port in model.inputs), input_keys(step, model), strict=True)
    whole = {key for name, key in keys if name not in stacks and len(model.inputs) > 1}
    return frozenset(whole.union(*(stack.needed for stack in stacks.values())))


def misfit(step: Onnx, model: OnnxModel, given: Forms, possible: Collection[str] | None) -> str | None:
    """Why every record with values of these forms fails, as `Runner.misfit`."""
    stacked = stacks_of(step, model)
    if len(model.inputs) == 1 and stacked:
        return None
    keys = zip(model.inputs, input_keys(step, model), strict=True)
    inputs = ModelInputs([ModelInput(port, key, cast_freely=step.cast_inputs) for port, key in keys])
    return inputs.misfit({key: form for key, form in given.items() if key not in stacked}, possible)


def few_values(step: Onnx, model: OnnxModel) -> list[str]:
    """A sentence for each input that takes more numbers than there are values named for it: right only with an array.

    Raises `StreamerError` where several values are named, none of them with its size: most likely one was forgotten.
    """
    sentences = []
    for port in model.inputs:
        source, length = (step.inputs or {}).get(port.name), _length(port)
        if source is None or isinstance(source, str) or length is None or _least(source) >= length:
            continue
        names = ", ".join(feature.field for feature in source)
        if len(source) > 1:
            raise StreamerError(
                f'{model.path}: the input "{port.name}" takes {length} numbers of a record, and {names} are '
                f"{_least(source)}; name the others too, or say which of these is an array or a list, and how long: "
                f"{{field: {source[-1].field}, size: {length - _least(source) + 1}}}"
            )
        sentences.append(
            f'the input "{port.name}" takes {length} numbers of a record: {names} has to be a list or an array of them'
        )
    return sentences


def _length(port: Port) -> int | None:
    """How many numbers of a record an input takes; `None`: any."""
    # A record's numbers are one sample of a model that takes `[N, F]`.
    axis = port.shape[1] if port.shape is not None and len(port.shape) == 2 else None
    return axis if isinstance(axis, int) else None


def _least(features: Sequence[Feature]) -> int:
    """The minimum count of numbers in these values: at least one each; an array without a size may hold more."""
    return sum(len(feature.one_hot) if feature.one_hot else feature.size or 1 for feature in features)


def stacks_of(step: Onnx, model: OnnxModel) -> dict[str, FeatureStack]:
    """The values that are stacked for an input, by the input's name.

    Raises `StreamerError` for an input that takes no numbers, or fewer than the values that are named for it.
    """
    stacks: dict[str, FeatureStack] = {}
    for port in model.inputs:
        source = (step.inputs or {}).get(port.name)
        if source is None or isinstance(source, str):
            continue
        if port.dtype.kind not in "iuf":
            raise StreamerError(
                f'{model.path}: the input "{port.name}" takes {port}, into which no values can be stacked; '
                "name the key of one value instead"
            )
        length, least = _length(port), _least(source)
        if length is not None and least > length:
            raise StreamerError(
                f'{model.path}: the input "{port.name}" takes {port}, {length} numbers of a record, and the step '
                f"names {least} for it: {', '.join(feature.field for feature in source)}"
            )
        stacks[port.name] = FeatureStack(source, port.dtype, length=length)
    return stacks
