"""What an open pipeline says of its columns before it has seen a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.arrow.library import pa
from pipelines.arrow.nesting import is_list
from pipelines.arrow.types import array_field, field_of
from pipelines.errors import MOST_KEYS, StreamerError, nearest
from pipelines.executors.executor import Executor
from pipelines.executors.sequence import SequenceExecutor
from pipelines.runners.forms import ArrayForm
from pipelines.runners.models.model import Port
from pipelines.runners.runner import Runner


class UnknownTypesError(StreamerError):
    """The types of a pipeline's results are not known before it has run."""


def declared_fields(executor: Executor, given: Any | None) -> list[Any]:
    """The `pyarrow.Field` of each result, as the steps state them for records of one sample.

    `given` is the `pyarrow.Schema` of the records, if it is known. Raises `UnknownTypesError` that says why they are
    not known.
    """
    if not isinstance(executor, SequenceExecutor):
        raise UnknownTypesError("only sequences of steps tell what their results are")
    if given is not None and _of_several_samples(executor.ports().inputs or (), given):
        raise UnknownTypesError("the arrays of the records have an axis for several samples")
    fields: dict[str, Any] = {} if given is None else {field.name: field for field in given}
    complete = given is not None
    for step in executor.open_steps:
        runner = step.runner
        if runner.gives is None:
            raise UnknownTypesError(f"the step {step.name} does not tell what it gives")
        if not runner.keeps_keys:
            fields, complete = {}, True
        for key in _in_order(runner):
            fields[key] = _stated(step.name, runner, key)
    if not complete:
        raise UnknownTypesError("the results have the records' other values too, whose types are not known")
    return list(fields.values())


def check_columns(executor: Executor, given: Any) -> None:
    """Raise `StreamerError` if records of this `pyarrow.Schema` lack a column without which each of them fails."""
    inputs = executor.ports().inputs
    if inputs is not None and len(inputs) == 1 and inputs[0].name not in given.names:
        # A model with one input takes the only array that there is.
        arrays = [field.name for field in given if _rank(field.type)]
        if len(arrays) != 1:
            _refuse("the pipeline's model", inputs[0].name, given.names)
    if not isinstance(executor, SequenceExecutor):
        return
    there = set(given.names)
    for step in executor.open_steps:
        for key in sorted(step.runner.needs - there):
            _refuse(f"the step {step.name}", key, given.names)
        if step.runner.gives is None:
            return
        there = set(step.runner.gives) | (there if step.runner.keeps_keys else set())


def _refuse(what: str, key: str, names: Sequence[str]) -> None:
    raise StreamerError(
        f'{what} needs the column "{key}"{nearest(key, names, MOST_KEYS)}; there are {", ".join(names[:MOST_KEYS])}'
    )


def _in_order(runner: Runner) -> list[str]:
    """The keys that it gives, those of a model's outputs and of the settings in the order that they have there."""
    known = [port.name for port in runner.ports().outputs or ()] + list(runner.sample_types)
    return list(dict.fromkeys([*known, *sorted(runner.gives or ())]))


def _stated(step: str, runner: Runner, key: str) -> Any:
    kind = runner.sample_types.get(key)
    field = None if kind is None else field_of(key, kind)
    if field is not None:
        return field
    ports = {port.name: port for port in runner.ports().outputs or ()}
    form = runner.forms({}).get(key)
    if key in ports and ports[key].shape and ports[key].dtype.kind != "O":
        # The first axis is that of samples.
        lengths = [length if isinstance(length, int) else None for length in (ports[key].shape or ())[1:]]
        return array_field(key, ports[key].dtype, tuple(lengths))
    if isinstance(form, ArrayForm) and form.shape is not None:
        return array_field(key, form.dtype, form.shape)
    raise UnknownTypesError(f'the step {step} does not tell the type of "{key}"')


def _of_several_samples(inputs: Sequence[Port], given: Any) -> bool:
    ranks: Mapping[str, int] = {field.name: _rank(field.type) for field in given}
    return any(port.shape is not None and ranks.get(port.name, 0) >= max(1, len(port.shape)) for port in inputs)


def _rank(kind: Any) -> int:
    """How many axes arrays of this type of Arrow have; 0 for what is no array."""
    if isinstance(kind, pa.FixedShapeTensorType):
        return len(kind.shape)
    rank = 0
    while is_list(kind):
        rank, kind = rank + 1, kind.value_type
    types = pa.types
    return rank if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) else 0
