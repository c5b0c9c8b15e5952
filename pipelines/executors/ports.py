"""`Ports`: the inputs and outputs of a pipeline, where its first and last steps know them."""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.runners.models.model import Port


@dataclass(frozen=True, slots=True)
class Ports:
    """The inputs and outputs of an open pipeline, each named by its key in the data.

    The first length of a port is that of its samples (docs/execution.md): a record brings one or several.
    """

    inputs: tuple[Port, ...] | None = None
    """The arrays that a record has to bring, and no others; `None`: not known, as the first step is no model."""
    outputs: tuple[Port, ...] | None = None
    """The arrays of a result; `None`: not known, as the last step is no model."""
