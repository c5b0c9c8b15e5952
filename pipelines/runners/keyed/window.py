"""Chooses the runner of WINDOW: one for samples by count, another for windows by time, sessions and numbers."""

from __future__ import annotations

from pipelines.runners.keyed.countedwindow import CountedWindowRunner
from pipelines.runners.keyed.timedwindow import TimedWindowRunner
from pipelines.runners.runner import OpenContext, StatefulRunner
from pipelines.steps.keyed.window import Window


def window_runner(step: Window, context: OpenContext) -> StatefulRunner:
    """The runner for the windows that the step describes."""
    if step.counted and not step.aggregate:
        return CountedWindowRunner(step, context)
    return TimedWindowRunner(step, context)
