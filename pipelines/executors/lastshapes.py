"""`LastShapes`: the shapes of the arrays that the models of a pipeline ran on last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Call(NamedTuple):
    """A call of a model."""

    names: tuple[str, ...]
    """Of its inputs."""
    shapes: Sequence[tuple[int, ...]]
    """Of the arrays that they were given."""
    whole: bool
    """Whether it was a batch, not a record that ran alone."""


class StepShapes:
    """What the model of one step ran on last. Written by the thread that runs the model, read by any."""

    __slots__ = ("last", "required")

    def __init__(self) -> None:
        self.last: Call | None = None
        """`None` before the first call."""
        self.required = True
        """Whether a model that cannot run on it is refused: not where the one before took records, and no zeros."""


class LastShapes:
    """What each model of a pipeline ran on last, by the name of its step.

    `Pipeline.open(ran=...)` takes one for all openings of a definition: a model of the same step that is opened later,
    from other files, is run on zeros of these shapes, so that its first batch does not wait for what it sets up.
    """

    def __init__(self) -> None:
        self._steps: dict[str, StepShapes] = {}

    def of(self, step: str) -> StepShapes:
        """Of the step of this name, `outer/inner` for one of a pipeline inside. From any thread."""
        return self._steps.setdefault(step, StepShapes())

    def hints(self) -> LastShapes:
        """The same for openings that may be for other arrays: models that cannot run on these are not refused."""
        copy = LastShapes()
        for step, shapes in [*self._steps.items()]:
            hint = copy.of(step)
            hint.last, hint.required = shapes.last, False
        return copy
