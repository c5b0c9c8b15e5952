"""`Ports`: the inputs and outputs of a pipeline, where its first and last steps know them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pipelines.runners.models.model import Port


@dataclass(frozen=True, slots=True)
class Ports:
    """The inputs and outputs of an open pipeline, each named by its key in the data.

    The first length of a port is that of its samples (docs/execution.md): a record brings one or several.
    """

    inputs: tuple[Port, ...] | None = None
    """The arrays that a record has to bring, and no others; `None`: not known, as the first step is no model."""
    optional: tuple[Port, ...] = ()
    """Arrays that a record may bring besides."""
    outputs: tuple[Port, ...] | None = None
    """The arrays of a result; `None`: not known, as the last step is no model."""

    @staticmethod
    def of_inputs(given: Iterable[Ports]) -> Ports:
        """The inputs of several pipelines that get the same records, without outputs; unknown if one's are."""
        inputs: dict[str, Port] = {}
        optional: dict[str, Port] = {}
        for ports in given:
            if ports.inputs is None:
                return Ports()
            for known, more in ((inputs, ports.inputs), (optional, ports.optional)):
                for port in more:
                    if known.setdefault(port.name, port) != port:
                        return Ports()
        return Ports(tuple(inputs.values()), tuple(port for name, port in optional.items() if name not in inputs))
