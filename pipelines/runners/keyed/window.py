"""Chooses the runner of WINDOW: one for windows by count, another for windows by time and sessions."""

from __future__ import annotations

from pipelines.errors import DefinitionError
from pipelines.runners.runner import OpenContext, StatefulRunner
from pipelines.steps.keyed.window import Window


def window_runner(step: Window, context: OpenContext) -> StatefulRunner:
    """The runner for the windows that the step describes."""
    raise DefinitionError("WINDOW has no runner yet")
