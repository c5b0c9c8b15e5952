"""Chooses the runner of WINDOW: one for windows by count, another for windows by time and sessions."""

from __future__ import annotations

from pipelines.errors import DefinitionError
from pipelines.runners.keyed.countedwindow import CountedWindowRunner
from pipelines.runners.runner import OpenContext, StatefulRunner
from pipelines.steps.keyed.window import Window


def window_runner(step: Window, context: OpenContext) -> StatefulRunner:
    """The runner for the windows that the step describes.

    Raises `DefinitionError` for windows that there is no runner for.
    """
    if step.counted and step.values:
        return CountedWindowRunner(step, context)
    raise DefinitionError(
        'WINDOW gathers "values" by count, with "size": windows by time and "aggregate" have no runner'
    )
