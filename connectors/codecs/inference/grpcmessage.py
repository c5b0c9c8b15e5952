"""Reads and writes gRPC's messages of the protocol, `ModelInferRequest` and `ModelInferResponse`.

They are split here and not by protobuf's classes, which copy the data of each tensor.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from connectors.codecs.inference.datatypes import BYTES, INTEGERS, WIDTHS
from connectors.codecs.inference.elements import packed
from connectors.codecs.inference.grpcwire import (
    FIXED64,
    LENGTH,
    VARINT,
    Writer,
    fields,
    floats,
    integers,
    signed,
    text,
    varint,
)
from connectors.codecs.inference.message import Ask, Message, Parameters, check_tensor_parameters, without_unoffered
from connectors.codecs.inference.tensors import Tensor
from pipelines.errors import WireError

_NAME, _VERSION, _ID, _PARAMETERS, _TENSORS = 1, 2, 3, 4, 5
_REQUESTED, _RAW_INPUTS = 6, 7
_RAW_OUTPUTS = 6
_RAW_TAG: Final = _RAW_INPUTS << 3 | LENGTH
_BOOL, _INT, _INT64, _UINT, _UINT64, _FP32, _FP64, _STRINGS = 1, 2, 3, 4, 5, 6, 7, 8
_CONTENTS: Final = {
    "BOOL": _BOOL,
    "INT8": _INT,
    "INT16": _INT,
    "INT32": _INT,
    "INT64": _INT64,
    "UINT8": _UINT,
    "UINT16": _UINT,
    "UINT32": _UINT,
    "UINT64": _UINT64,
    "FP32": _FP32,
    "FP64": _FP64,
    BYTES: _STRINGS,
}
_CONTENTS_NAMES: Final = {
    _BOOL: "bool",
    _INT: "int",
    _INT64: "int64",
    _UINT: "uint",
    _UINT64: "uint64",
    _FP32: "fp32",
    _FP64: "fp64",
    _STRINGS: "bytes",
}

Contents = bytes | memoryview
"""The data of a tensor, as a binary part has them."""


class Parts(NamedTuple):
    """A request whose data are all behind the rest of it, as most programs write it."""

    rest: bytes
    """The message without its id and the data."""
    id: str
    raw: list[memoryview]
    """The data of each tensor."""


def split(message: memoryview) -> Parts | None:
    """The parts of a request; `None` if its fields come in another order. Raises `WireError`."""
    at, size = 0, len(message)
    before: list[memoryview] = []
    asked_id, begin, tensors = "", 0, 0
    while at < size and message[at] != _RAW_TAG:
        start = at
        tag, at = varint(message, at)
        if tag & 7 != LENGTH:
            return None
        length, at = varint(message, at)
        at += length
        if tag >> 3 == _TENSORS:
            tensors += 1
        elif tag >> 3 == _ID:
            asked_id = text(message[at - length : at], "the id")
            before.append(message[begin:start])
            begin = at
    before.append(message[begin:at])
    raw: list[memoryview] = []
    while at < size:
        if message[at] != _RAW_TAG:
            return None
        length, at = varint(message, at + 1)
        raw.append(message[at : at + length])
        at += length
    return Parts(b"".join(before), asked_id, raw) if at == size and raw and len(raw) == tensors else None


def read_request(payload: bytes | memoryview) -> tuple[Message, list[Contents]]:
    """The request, and the data of its tensors. Raises `WireError`."""
    return _read(payload, "input", _RAW_INPUTS)


def read_answer(payload: bytes | memoryview) -> tuple[Message, list[Contents]]:
    """The answer, and the data of its tensors. Raises `WireError`."""
    return _read(payload, "output", _RAW_OUTPUTS)


def write(
    kind: str,
    model: str,
    version: str,
    id: str,
    tensors: Sequence[tuple[str, str, Sequence[int], Any]],
    *,
    outputs: Iterable[str] = (),
    parameters: Parameters | None = None,
) -> bytes:
    """A message of `kind`, input (a request) or output (an answer), of tensors: name, datatype, shape and data."""
    writer = Writer()
    for number, value in ((_NAME, model), (_VERSION, version), (_ID, id)):
        if value:
            writer.length(number, value)
    for key, parameter in (parameters or {}).items():
        entry = Writer()
        entry.length(1, key)
        entry.length(2, _written_parameter(parameter))
        writer.length(_PARAMETERS, entry.bytes())
    for name, datatype, shape, _ in tensors:
        writer.length(_TENSORS, head(name, datatype, shape))
    for name in outputs:
        entry = Writer()
        entry.length(1, name)
        writer.length(_REQUESTED, entry.bytes())
    for _, _, _, data in tensors:
        writer.length(_RAW_INPUTS if kind == "input" else _RAW_OUTPUTS, data)
    return writer.bytes()


def head(name: str, datatype: str, shape: Sequence[int]) -> bytes:
    """The message of a tensor without its data."""
    entry = Writer()
    entry.length(1, name)
    entry.length(2, datatype)
    if shape:
        lengths = Writer()
        for length in shape:
            lengths.number(length)
        entry.length(3, lengths.bytes())
    return entry.bytes()


def _read(payload: bytes | memoryview, kind: str, raw_field: int) -> tuple[Message, list[Contents]]:
    model = version = asked_id = ""
    parameters: dict[str, Any] = {}
    entries: list[memoryview] = []
    raw: list[Contents] = []
    outputs: list[str] = []
    for number, wire, value in fields(memoryview(payload)):
        if number == raw_field:
            raw.append(_data(wire, value))
        elif number == _TENSORS:
            entries.append(_data(wire, value))
        elif number == _NAME:
            model = text(value, "the name of the model")
        elif number == _VERSION:
            version = text(value, "the version of the model")
        elif number == _ID:
            asked_id = text(value, "the id")
        elif number == _PARAMETERS:
            key, parameter = _parameter(_data(wire, value))
            parameters[key] = parameter
        elif number == _REQUESTED:
            outputs.append(_requested(_data(wire, value), outputs))
    if kind == "input":
        parameters = dict(without_unoffered(parameters))
        parameters.pop("binary_data_output", None)
    tensors, contents = _tensors(entries, raw, kind)
    ask = Ask("grpc", asked_id, tuple(outputs) or None, model=model, version=version)
    return Message(tensors, parameters, ask), contents


def _tensors(entries: list[memoryview], raw: list[Contents], kind: str) -> tuple[tuple[Tensor, ...], list[Contents]]:
    names: set[str] = set()
    tensors: list[Tensor] = []
    typed: list[dict[int, list[tuple[int, Any]]]] = []
    for entry in entries:
        tensor, values = _tensor(entry, kind)
        if tensor.name in names:
            raise WireError(f"{tensor.named} is there more than once")
        names.add(tensor.name)
        tensors.append(tensor)
        typed.append(values)
    if not raw:
        return tuple(tensors), [_contents(*pair) for pair in zip(tensors, typed, strict=True)]
    mixed = next((tensor for tensor, values in zip(tensors, typed, strict=True) if any(values.values())), None)
    if mixed is not None:
        raise WireError(
            f"{mixed.named} has contents, and the request has raw_{kind}_contents besides; send one of them"
        )
    if len(raw) != len(tensors):
        raise WireError(f"the request has {len(tensors)} {kind}s and {len(raw)} raw_{kind}_contents")
    for tensor, data in zip(tensors, raw, strict=True):
        tensor.check_bytes(len(data))
    return tuple(tensors), raw


def _tensor(entry: memoryview, kind: str) -> tuple[Tensor, dict[int, list[tuple[int, Any]]]]:
    name, datatype = "", ""
    shape: list[int] = []
    parameters: dict[str, Any] = {}
    typed: dict[int, list[tuple[int, Any]]] = {}
    for number, wire, value in fields(entry):
        if number == 1:
            name = text(value, f"the name of an {kind}")
        elif number == 2:
            datatype = text(value, "a datatype")
        elif number == 3:
            shape += map(signed, integers(wire, value))
        elif number == 4:
            key, parameter = _parameter(_data(wire, value))
            parameters[key] = parameter
        elif number == 5:
            for field, inner, part in fields(_data(wire, value)):
                typed.setdefault(field, []).append((inner, part))
    if not name:
        raise WireError(f"an {kind} has no name")
    check_tensor_parameters(f'{kind} "{name}"', parameters)
    return Tensor.checked(kind, name, datatype, shape), typed


def _contents(tensor: Tensor, typed: dict[int, list[tuple[int, Any]]]) -> Contents:
    """The data of a tensor that are in its `contents`, as a binary part has them."""
    field = _CONTENTS.get(tensor.datatype)
    if field is None:
        raise WireError(f"{tensor.named} is {tensor.datatype}, which only raw_input_contents can hold")
    other = next((number for number, parts in typed.items() if number != field and _CONTENTS_NAMES.get(number)), None)
    if other is not None:
        raise WireError(
            f"{tensor.named} is {tensor.datatype}, whose contents are {_CONTENTS_NAMES[field]}_contents, "
            f"not {_CONTENTS_NAMES[other]}_contents"
        )
    parts = typed.get(field, [])
    if tensor.datatype == BYTES:
        elements = [bytes(_data(*part)) for part in parts]
        _check_count(tensor, len(elements))
        return packed(elements)
    if field in (_FP32, _FP64):
        width = WIDTHS[tensor.datatype]
        data = b"".join(floats(*part, width) for part in parts)
        _check_count(tensor, len(data) // width)
        return data
    numbers = [number for part in parts for number in integers(*part)]
    _check_count(tensor, len(numbers))
    if field == _BOOL:
        return bytes(map(bool, numbers))
    if field == _UINT:
        numbers = [number & 0xFFFFFFFF for number in numbers]
    elif field == _INT:
        numbers = [(number & 0xFFFFFFFF ^ 0x80000000) - 0x80000000 for number in numbers]
    elif field == _INT64:
        numbers = list(map(signed, numbers))
    dtype = INTEGERS[tensor.datatype]
    limits = np.iinfo(dtype)
    if numbers and (min(numbers) < int(limits.min) or max(numbers) > int(limits.max)):
        raise WireError(f"{tensor.named} is {tensor.datatype}, and its data hold a number beyond that range")
    return np.array(numbers, dtype.newbyteorder("<")).tobytes()


def _check_count(tensor: Tensor, count: int) -> None:
    if count != tensor.count:
        raise WireError(
            f"{tensor.named} has {tensor.count} values by its shape {list(tensor.shape)}, and its data hold {count}"
        )


def _requested(entry: memoryview, outputs: list[str]) -> str:
    name = ""
    parameters: dict[str, Any] = {}
    for number, wire, value in fields(entry):
        if number == 1:
            name = text(value, "the name of an output")
        elif number == 2:
            key, parameter = _parameter(_data(wire, value))
            parameters[key] = parameter
    if not name:
        raise WireError("an output has no name")
    if name in outputs:
        raise WireError(f'output "{name}" is asked for more than once')
    check_tensor_parameters(f'output "{name}"', parameters)
    return name


def _parameter(entry: memoryview) -> tuple[str, str | bool | int | float]:
    key = ""
    parameter: str | bool | int | float = ""
    for number, wire, value in fields(entry):
        if number == 1:
            key = text(value, "the name of a parameter")
        elif number == 2:
            for kind, inner, choice in fields(_data(wire, value)):
                parameter = _choice(kind, inner, choice, parameter)
    return key, parameter


def _choice(kind: int, wire: int, value: Any, before: str | bool | int | float) -> str | bool | int | float:
    if kind == 3:
        return text(value, "a parameter")
    if kind in (1, 2, 5) and wire == VARINT:
        return bool(value) if kind == 1 else signed(value) if kind == 2 else int(value)
    if kind == 4 and wire == FIXED64:
        return float(np.frombuffer(value, "<f8")[0])
    return before


def _written_parameter(value: str | bool | int | float) -> bytes:
    writer = Writer()
    if isinstance(value, str):
        writer.length(3, value)
    elif isinstance(value, bool):
        writer.varint(1, value)
    elif isinstance(value, int):
        writer.varint(2 if value < 1 << 63 else 5, value)
    else:
        writer.double(4, value)
    return writer.bytes()


def _data(wire: int, value: Any) -> memoryview:
    if wire != LENGTH or not isinstance(value, memoryview):
        raise WireError("the message has a field of another wire type")
    return value
