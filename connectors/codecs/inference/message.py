"""`Message`: a request or an answer without the data of its tensors; and `Ask`: what a request asks of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from connectors.codecs.inference.errors import NotOfferedError
from connectors.codecs.inference.tensors import Tensor
from pipelines.errors import WireError

Form = Literal["http", "grpc"]
"""The form of a message: a JSON object, with or without a binary part; or the message of gRPC."""

Parameters = Mapping[str, str | bool | int | float]

_SEQUENCE: Final = ("sequence_id", "sequence_start", "sequence_end")
_MEMORY: Final = ("shared_memory_region", "shared_memory_offset", "shared_memory_byte_size")


@dataclass(frozen=True, slots=True)
class Ask:
    """What a request asks of its answer."""

    form: Form = "http"
    id: str = ""
    """The answer repeats it; empty: the request has none."""
    outputs: tuple[str, ...] | None = None
    """The outputs that the answer has, in this order; `None`: all."""
    binary: Mapping[str, bool] = field(default_factory=dict)
    """By output whether its data are to be in the binary part, where the request says it of that output."""
    all_binary: bool = False
    """Whether all other outputs' are."""
    model: str = ""
    """The name of the model, where the message itself says it."""
    version: str = ""
    """The version of the model, likewise."""

    def with_id(self, id: str) -> Ask:
        """The same of a request with this id."""
        return Ask(self.form, id, self.outputs, self.binary, self.all_binary, self.model, self.version)


@dataclass(frozen=True, slots=True)
class Message:
    """A request, or an answer, whose tensors are heads without their binary data."""

    tensors: tuple[Tensor, ...]
    parameters: Parameters
    """Of the request, without those that `Ask` says already."""
    ask: Ask


def without_unoffered(parameters: Parameters) -> Parameters:
    """The parameters of a request that nothing of ours has a meaning for. Raises `WireError` for a sequence's."""
    if any(parameters.get(name) for name in _SEQUENCE):
        name = next(name for name in _SEQUENCE if parameters.get(name))
        raise WireError(
            f"the parameter {name}: requests in a sequence are not offered, as each request is answered by itself; "
            "send it without one"
        )
    return {key: value for key, value in parameters.items() if key not in _SEQUENCE}


def check_tensor_parameters(named: str, parameters: Mapping[str, Any]) -> None:
    """Raise `NotOfferedError` if the parameters of an input or output ask for what there is not here."""
    for name in _MEMORY:
        if name in parameters:
            raise NotOfferedError(f"{named}: shared memory is not offered; send the data in the request")
    if parameters.get("classification"):
        raise NotOfferedError(
            f"{named}: classification is not offered; ask for the output itself, or let the pipeline classify"
        )
