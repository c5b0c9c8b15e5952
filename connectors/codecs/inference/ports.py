"""Checks requests against the inputs and outputs of the pipeline that runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from connectors.codecs.inference.datatypes import BYTES, WIDTHS, datatype_of
from connectors.codecs.inference.message import Message
from connectors.codecs.inference.tensors import Tensor
from pipelines.errors import WireError, nearest
from pipelines.executors.ports import Ports
from pipelines.runners.models.model import Port

_MOST: Final = 20
"""The most inputs or outputs that an error lists."""


def described(port: Port) -> str:
    """The port as metadata describe it: `image FP32 [-1, 64]`."""
    datatype = datatype_of(port.dtype)
    if port.shape is None:
        return f"{port.name} {datatype} of any shape"
    return f"{port.name} {datatype} {[length if isinstance(length, int) else -1 for length in port.shape]}"


def check(message: Message, ports: Ports) -> None:
    """Raise `WireError` unless the pipeline takes these tensors, and has the outputs that are asked for.

    The first length of a tensor is free: it is the number of its samples.
    """
    if ports.inputs is not None:
        _check_inputs(message.tensors, ports.inputs, ports.optional)
    if ports.outputs is not None and message.ask.outputs is not None:
        known = [port.name for port in ports.outputs]
        for name in message.ask.outputs:
            if name not in known:
                raise WireError(
                    f'output "{name}": there is no such output{nearest(name, known)}; there is {_listed(ports.outputs)}'
                )


def raw_tensor(body: memoryview, ports: Ports) -> tuple[Tensor, bytes | memoryview]:
    """The only input of the pipeline, whose data are all of a body, and these data. Raises `WireError`.

    It is one sample, whose shape has to be known but for one length; a single element, if it is BYTES.
    """
    if ports.inputs is None or len(ports.inputs) != 1:
        takes = "its inputs are not known" if ports.inputs is None else f"it takes {_listed(ports.inputs) or 'none'}"
        raise WireError(f"a request of bytes alone needs a model with one input, and {takes}; send names and shapes")
    (port,) = ports.inputs
    datatype = datatype_of(port.dtype)
    shape = [1] if port.shape is None else [length if isinstance(length, int) else -1 for length in port.shape]
    named = f'input "{port.name}"'
    if datatype == BYTES:
        if any(length not in (1, -1) for length in shape):
            raise WireError(f"{named}: the model takes {described(port)}, and a request of bytes alone has one element")
        data = len(body).to_bytes(4, "little") + bytes(body)
        return Tensor.checked("input", port.name, datatype, [1] * len(shape), len(data)), data
    if len(shape) > 1 and shape[0] == -1:
        shape[0] = 1
    if shape.count(-1) > 1 or port.shape is None:
        raise WireError(
            f"{named}: the model takes {described(port)}, whose lengths a request of bytes alone cannot say"
        )
    if -1 in shape:
        step = WIDTHS[datatype]
        for length in shape:
            step *= max(length, 1) if length != -1 else 1
        shape[shape.index(-1)] = len(body) // step
    return Tensor.checked("input", port.name, datatype, shape, len(body)), body


def _check_inputs(tensors: Sequence[Tensor], inputs: Sequence[Port], optional: Sequence[Port]) -> None:
    known = {port.name: port for port in (*inputs, *optional)}
    there = set()
    for tensor in tensors:
        port = known.get(tensor.name)
        if port is None:
            raise WireError(
                f"{tensor.named}: the model has no such input{nearest(tensor.name, known)}; it takes {_listed(inputs)}"
            )
        _check_input(tensor, port)
        there.add(tensor.name)
    for port in inputs:
        if port.name not in there:
            raise WireError(f'input "{port.name}" is missing; the model takes {_listed(inputs)}')


def _check_input(tensor: Tensor, port: Port) -> None:
    if tensor.datatype != datatype_of(port.dtype):
        raise WireError(f"{tensor.named} is {tensor.datatype}, and the model takes {described(port)}")
    if port.shape is None:
        return
    fits = len(tensor.shape) == len(port.shape) and all(
        not isinstance(wanted, int) or length == wanted
        for length, wanted in zip(tensor.shape[1:], port.shape[1:], strict=True)
    )
    if not fits:
        raise WireError(f"{tensor.named} has the shape {list(tensor.shape)}, and the model takes {described(port)}")


def _listed(ports: Sequence[Port]) -> str:
    names = [described(port) for port in ports[:_MOST]]
    return ", ".join(names) + (", ..." if len(ports) > _MOST else "")
