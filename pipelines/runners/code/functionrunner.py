"""Chooses the runner of FUNCTION: one for functions that remember, another for all others."""

from __future__ import annotations

from pipelines.runners.code.function import FunctionRunner
from pipelines.runners.code.remembering import RememberingRunner
from pipelines.runners.runner import OpenContext, Runner
from pipelines.steps.code.function import Function


def function_runner(step: Function, context: OpenContext) -> Runner:
    """The runner for the function of the step."""
    return FunctionRunner(step, context) if step.remember is None else RememberingRunner(step, context)
