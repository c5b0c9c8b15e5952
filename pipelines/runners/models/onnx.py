"""Runs ONNX: a model in onnxruntime."""

from __future__ import annotations

from pipelines.errors import StreamerError, nearest
from pipelines.runners.models.modelrunner import ModelRunner
from pipelines.runners.models.onnxmodel import OnnxModel
from pipelines.runners.runner import OpenContext
from pipelines.steps.models.onnx import Onnx


class OnnxRunner(ModelRunner):
    """`ModelRunner` on onnxruntime. Inputs are taken by the model's names; mappings rename inputs and outputs."""

    def __init__(self, step: Onnx, context: OpenContext) -> None:
        model = OnnxModel(step, context)
        renamed = step.output_names if isinstance(step.output_names, dict) else {}
        super().__init__(
            model,
            _input_keys(step, model),
            [renamed.get(port.name, port.name) for port in model.outputs],
            warm_up=int(step.warm_up),
            max_batch=step.max_batch,
            cast_inputs=step.cast_inputs,
        )


def _input_keys(step: Onnx, model: OnnxModel) -> list[str]:
    names = [port.name for port in model.inputs]
    keys = step.input_names if isinstance(step.input_names, dict) else {}
    for name in keys:
        if name not in names:
            raise StreamerError(
                f'{model.path}: the model has no input "{name}"{nearest(name, names)}; it has {", ".join(names)}'
            )
    return [keys.get(name, name) for name in names]
