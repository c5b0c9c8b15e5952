"""Runs TENSORRT: an ONNX model in onnxruntime with its TensorRT provider."""

from __future__ import annotations

from typing import Any

from pipelines.errors import MissingPackageError, StreamerError
from pipelines.runners.models.onnx import OnnxRunner
from pipelines.runners.models.onnxmodel import OnnxModel
from pipelines.runners.runner import OpenContext
from pipelines.steps.models.onnx import Onnx
from pipelines.steps.models.tensorrt import Dimensions, TensorRt
from pipelines.telemetry import import_onnxruntime

PROVIDER = "TensorrtExecutionProvider"


class TensorRtRunner(OnnxRunner):
    """`OnnxRunner` with the providers TensorRT, CUDA and CPU: each runs the operators that the one before it cannot.

    If TensorRT is not there, or does not start, that is one warning, or a `StreamerError` if the step is `strict`.
    """

    def __init__(self, step: TensorRt, context: OpenContext) -> None:
        available = _available()
        if step.strict and PROVIDER not in available:
            raise StreamerError(
                f"the TENSORRT step is strict, but this onnxruntime has {', '.join(available)} only; install "
                "onnxruntime-gpu and TensorRT"
            )
        super().__init__(onnx_step(step), context)
        assert isinstance(self.model, OnnxModel)
        if step.strict and PROVIDER not in self.model.session.get_providers():
            self.close()
            raise StreamerError(
                "the TENSORRT step is strict, but TensorRT did not start; are the libraries of TensorRT and CUDA "
                "those that this onnxruntime needs?"
            )


def onnx_step(step: TensorRt) -> Onnx:
    """The equivalent ONNX step. Raises `StreamerError` if the dimensions do not fit together."""
    return Onnx(
        step.model_uri,
        name=step.name,
        input_names=step.input_names,
        output_names=step.output_names,
        providers=({PROVIDER: provider_options(step)}, "cuda", "cpu"),
        session_options=step.session_options,
        warm_up=step.warm_up,
        max_batch=_max_batch(step),
        cast_inputs=step.cast_inputs,
    )


def provider_options(step: TensorRt) -> dict[str, Any]:
    """The options of onnxruntime's TensorRT provider, by its names. Raises as `onnx_step`."""
    options: dict[str, Any] = {}
    if step.use_fp16:
        options["trt_fp16_enable"] = True
    if step.max_workspace_size:
        options["trt_max_workspace_size"] = step.max_workspace_size
    if step.min_dimensions or step.optimal_dimensions or step.max_dimensions:
        least, best, most = _profile(step)
        options["trt_profile_min_shapes"] = _shapes(least)
        options["trt_profile_opt_shapes"] = _shapes(best)
        options["trt_profile_max_shapes"] = _shapes(most)
    return {**options, **step.provider_options}


def _available() -> list[str]:
    try:
        onnxruntime = import_onnxruntime()
    except ImportError as error:
        raise MissingPackageError("onnxruntime", "onnx", "the step TENSORRT") from error
    providers: list[str] = onnxruntime.get_available_providers()
    return providers


Shapes = dict[str, tuple[int, ...]]


def _profile(step: TensorRt) -> tuple[Shapes, Shapes, Shapes]:
    least, best, most = (
        _by_name(given) for given in (step.min_dimensions, step.optimal_dimensions, step.max_dimensions)
    )
    if not least.keys() == best.keys() == most.keys():
        raise StreamerError(
            "the TENSORRT step: minDimensions, optimalDimensions and maxDimensions go together, for the same inputs; "
            f"they name {_listed(least)}, {_listed(best)} and {_listed(most)}"
        )
    for name, low in least.items():
        optimum, high = best[name], most[name]
        if not len(low) == len(optimum) == len(high) or any(
            not a <= b <= c for a, b, c in zip(low, optimum, high, strict=True)
        ):
            raise StreamerError(
                f'the TENSORRT step: "{name}" is {list(low)} at least, {list(high)} at most and {list(optimum)} at '
                "best; every length must grow in that order, and the numbers of axes be equal"
            )
    return least, best, most


def _by_name(given: Dimensions) -> Shapes:
    return {named.name: named.dimensions for named in given or ()}


def _listed(shapes: Shapes) -> str:
    return ", ".join(shapes) or "none"


def _shapes(shapes: Shapes) -> str:
    return ",".join(f"{name}:{'x'.join(map(str, lengths))}" for name, lengths in shapes.items())


def _max_batch(step: TensorRt) -> int | None:
    bounds = [named.dimensions[0] for named in step.max_dimensions or () if named.dimensions]
    if step.batch_size:
        bounds.append(step.batch_size)
    return min(bounds, default=None)
