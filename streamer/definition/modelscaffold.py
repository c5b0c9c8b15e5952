"""The files of a new service around a model, whose inputs and outputs are read from the model."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pipelines
from pipelines.data.data import Data
from pipelines.errors import DefinitionError, StreamerError
from pipelines.plugins.requirements import Package
from pipelines.runners.models.onnxsession import why_not_loaded
from pipelines.telemetry import import_onnxruntime

MODEL_STEP: Final = "model"
"""The name of the step that runs the model."""

_MOST_FIELDS: Final = 64
"""Inputs of more elements than this are one list in a record, others have a field for each element."""
_ANY: Final = 4
"""The length of a dimension that the model leaves open."""
_SAMPLES: Final = 3


@dataclass(frozen=True, slots=True)
class _Input:
    name: str
    type: str
    shape: tuple[int, ...]
    """The shape for one record, without the dimension of the batch."""
    fields: tuple[str, ...]
    """The keys whose values are stacked into this input; empty: the key of its name holds the whole input."""


def files_for_model(model: Path) -> dict[str, str | bytes]:
    """The model, the pipeline that runs it, records to try it with, and cases, by their paths in the service's folder.

    The cases expect the model's present results for these records. Raises `DefinitionError` for a file that is not an
    ONNX model, `MissingPackageError` without onnxruntime, and `StreamerError` if the model cannot be run on records
    that fit its inputs.
    """
    inputs = _inputs(model)
    step: dict[str, Any] = {"@type": "ONNX", "name": MODEL_STEP, "modelUri": model.name}
    stacked = {tensor.name: list(tensor.fields) for tensor in inputs if tensor.fields}
    if stacked:
        step["inputs"] = {tensor.name: stacked.get(tensor.name, tensor.name) for tensor in inputs}
    chance = random.Random(7)  # noqa: S311 - samples, not secrets
    samples = [{"id": number, **_sample(inputs, chance)} for number in range(1, _SAMPLES + 1)]
    results = _run(model, step, samples)
    lines = '  - "@type": ONNX\n' + "".join(
        f"    {key}: {json.dumps(value)}\n" for key, value in step.items() if key != "@type"
    )
    first, last = {"id": 1, **results[0]}, {"id": _SAMPLES, **results[-1]}
    return {
        model.name: model.read_bytes(),
        "pipeline": f"# The inputs of the model, and the keys of a record that fill them.\nsteps:\n{lines}",
        "input.jsonl": "".join(json.dumps(sample) + "\n" for sample in samples),
        "cases/first.yaml": "# A record, and the model's result for it when this file was written.\n"
        + _case(samples[0], first),
        "cases/last.yaml": _case(samples[-1], last),
        "cases/broken.yaml": f"input: {{id: 9}}  # no input for the model\nfails: {MODEL_STEP}  # the failing step\n",
    }


def _case(sample: dict[str, Any], result: dict[str, Any]) -> str:
    return f"input: {json.dumps(sample)}\nexpect: {json.dumps(result)}\n"


def _inputs(model: Path) -> list[_Input]:
    if model.suffix != ".onnx":
        raise DefinitionError(f"{model}: an ONNX model is needed, a file that ends in .onnx; docs/models.md makes one")
    if not model.is_file():
        raise DefinitionError(f"{model}: no such file")
    Package("onnxruntime", extra="onnx").check("a service around an ONNX model")
    onnxruntime = import_onnxruntime()
    try:
        session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    except Exception as error:
        raise DefinitionError(f"{model}: it cannot be loaded: {why_not_loaded(error, model)}") from error
    given = session.get_inputs()
    if any(tensor.name == "id" for tensor in given):
        raise DefinitionError(
            f'{model}: the model has an input "id", the key that identifies records here; write the service by hand'
        )
    return [_input(tensor.name, tensor.type, tensor.shape, alone=len(given) == 1) for tensor in given]


def _input(name: str, kind: str, shape: Sequence[Any], *, alone: bool) -> _Input:
    inner = tuple(length if isinstance(length, int) and length > 0 else _ANY for length in shape[1:])
    if len(inner) != 1 or inner[0] > _MOST_FIELDS:
        return _Input(name, kind, inner, ())
    if "string" in kind or "bool" in kind:
        # Only numbers are stacked. One text or boolean stands for an array of one.
        return _Input(name, kind, () if inner[0] == 1 else inner, ())
    if inner[0] == 1:
        return _Input(name, kind, inner, (name,))
    return _Input(
        name, kind, inner, tuple(f"{'f' if alone else f'{name}_'}{place}" for place in range(1, inner[0] + 1))
    )


def _sample(inputs: Sequence[_Input], chance: random.Random) -> dict[str, Any]:
    sample: dict[str, Any] = {}
    for tensor in inputs:
        if tensor.fields:
            sample |= {field: _value(tensor.type, chance) for field in tensor.fields}
        else:
            sample[tensor.name] = _filled(tensor.type, tensor.shape, chance)
    return sample


def _filled(kind: str, shape: Sequence[int], chance: random.Random) -> Any:
    if not shape:
        return _value(kind, chance)
    return [_filled(kind, shape[1:], chance) for _ in range(shape[0])]


def _value(kind: str, chance: random.Random) -> Any:
    if "string" in kind:
        return chance.choice(["a", "b"])
    if "bool" in kind:
        return chance.random() < 0.5
    return chance.randrange(10) if "int" in kind else round(chance.random(), 3)


def _run(model: Path, step: dict[str, Any], samples: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    from connectors.codecs.registry import codec_of
    from pipelines.data.batch import Batch

    results: list[dict[str, Any]] = []
    with pipelines.loads(json.dumps({"steps": [step]}), base=model.absolute().parent).open() as executor:
        for outcome in executor.run_many(samples):
            if not isinstance(outcome, Data):
                raise StreamerError(
                    f"{model}: it cannot be run on records like {json.dumps(samples[0])[:200]}: {outcome}"
                )
            encoded = codec_of("json").encode(Batch.of([outcome]))
            for error in encoded.failed.values():
                raise error
            results.append(json.loads(encoded.values[0] or b"{}"))
    return results
