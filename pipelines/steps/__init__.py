"""Configuration of steps, one file a family. `STEPS` lists the types that this project has."""

from __future__ import annotations

from pipelines.steps.base import Step
from pipelines.steps.classifier import ClassifierOutput
from pipelines.steps.config import EXTENSION, Config, Int, Spelling
from pipelines.steps.function import Function
from pipelines.steps.logging import Logging
from pipelines.steps.onnx import Onnx, SessionOptions
from pipelines.steps.regression import RegressionOutput

STEPS: tuple[type[Step], ...] = (Logging, ClassifierOutput, RegressionOutput, Onnx, Function)

__all__ = [
    "EXTENSION",
    "STEPS",
    "ClassifierOutput",
    "Config",
    "Function",
    "Int",
    "Logging",
    "Onnx",
    "RegressionOutput",
    "SessionOptions",
    "Spelling",
    "Step",
]
