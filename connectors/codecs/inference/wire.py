"""Requests and answers as a client has them: arrays by name to a body, and a body to arrays by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from connectors.codecs.inference import grpcmessage, jsonmessage
from connectors.codecs.inference.datatypes import BYTES, array_of, datatype_of
from connectors.codecs.inference.elements import as_bytes, as_texts, packed, unpacked
from connectors.codecs.inference.jsondata import array_from, texts_from
from connectors.codecs.inference.message import Message, Parameters
from connectors.codecs.inference.split import sections
from connectors.codecs.inference.tensors import Tensor
from pipelines.errors import WireError
from pipelines.values.ndarray import to_buffer
from pipelines.wire.shortest import shortest

Array: TypeAlias = npt.NDArray[Any]

HEADER_LENGTH: Final = "inference-header-content-length"
"""The header that says how many bytes of a body are JSON; those after it are binary tensors."""

_ALIGNED: Final = 8

_encode: Final = msgspec.json.Encoder().encode


def write_request(
    tensors: Mapping[str, Any],
    *,
    id: str = "",
    outputs: Iterable[str] | None = None,
    parameters: Parameters | None = None,
    binary: bool = True,
    binary_outputs: bool | None = None,
) -> tuple[bytes, int | None]:
    """The body of a request, and the value of its header `inference-header-content-length`, `None` without binary data.

    Args:
        tensors: Arrays by name: of numbers, booleans, or of texts and bytes (BYTES). Anything else is what
            `numpy.asarray` makes of it.
        id: The id, which the answer repeats.
        outputs: The outputs that the answer shall have, in this order; by default all.
        parameters: The parameters of the request.
        binary: Whether the data go as bytes; otherwise they are JSON's numbers and texts, which have no NaN.
        binary_outputs: Whether the answer shall have its data as bytes; by default as `binary`.

    Raises:
        WireError: The protocol or JSON cannot have a value.
    """
    entries: list[dict[str, Any]] = []
    parts: list[bytes] = []
    for name, value in tensors.items():
        array, datatype = _array(value)
        entry: dict[str, Any] = {"name": name, "shape": list(array.shape), "datatype": datatype}
        if binary:
            parts.append(_raw(array, datatype, name))
            entry["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            entry["data"] = listed(array, datatype, f'input "{name}"')
        entries.append(entry)
    document: dict[str, Any] = {"id": id} if id else {}
    document["inputs"] = entries
    if outputs is not None:
        document["outputs"] = [{"name": name} for name in outputs]
    said = dict(parameters or {})
    if binary if binary_outputs is None else binary_outputs:
        said["binary_data_output"] = True
    if said:
        document["parameters"] = said
    header = _encode(document)
    if not binary:
        return header, None
    # Spaces, so that the data are aligned wherever the body is, and the server need not copy them.
    header += b" " * (-len(header) % _ALIGNED)
    return b"".join([header, *parts]), len(header)


def read_answer(body: bytes, header_length: int | None = None) -> dict[str, Array]:
    """The outputs of an answer by name; those of BYTES are arrays of `str`, or of `bytes` if some are not UTF-8.

    `header_length` is the value of the answer's header `inference-header-content-length`, `None` if it has none.
    Raises `WireError`; of `{"error": TEXT}` with that text.
    """
    if header_length is not None and not 0 <= header_length <= len(body):
        raise WireError(f"the answer has {len(body)} bytes, and its JSON would be {header_length}")
    view = memoryview(body)
    cut = len(body) if header_length is None else header_length
    message = jsonmessage.read_answer(view[:cut])
    return _arrays(message, sections(message.tensors, view[cut:], "answer"))


def write_message(
    model: str,
    tensors: Mapping[str, Any],
    *,
    version: str = "",
    id: str = "",
    outputs: Iterable[str] = (),
    parameters: Parameters | None = None,
) -> bytes:
    """The `ModelInferRequest` of gRPC; arguments and errors are those of `write_request`."""
    heads: list[tuple[str, str, Sequence[int], bytes]] = []
    for name, value in tensors.items():
        array, datatype = _array(value)
        heads.append((name, datatype, array.shape, _raw(array, datatype, name)))
    return grpcmessage.write("input", model, version, id, heads, outputs=outputs, parameters=parameters)


def read_message(payload: bytes) -> dict[str, Array]:
    """The outputs of gRPC's `ModelInferResponse`, as `read_answer` gives them. Raises `WireError`."""
    message, contents = grpcmessage.read_answer(payload)
    return _arrays(message, contents)


def listed(array: Array, datatype: str, named: str) -> list[Any]:
    """The elements of an array as JSON has them, in C order. Raises `WireError`, which begins with `named`.

    Floats get the shortest digits that give them back in their type.
    """
    flat = array.reshape(-1)
    if datatype == BYTES:
        return list(_written_texts(flat.tolist(), named))
    if datatype == "BF16":
        flat = _finite(flat.astype(np.float32), named)
    elif datatype in ("FP16", "FP32"):
        flat = shortest(_finite(flat, named))
    elif datatype == "FP64":
        flat = _finite(flat, named)
    numbers: list[Any] = flat.tolist()
    return numbers


def _finite(array: Array, named: str) -> Array:
    if not np.isfinite(array).all():
        raise WireError(f"{named} has NaN or infinite numbers, which JSON does not have; binary data can carry them")
    return array


def _written_texts(elements: Sequence[str | bytes], named: str) -> list[str]:
    texts = as_texts(as_bytes(elements, named))
    if texts is None:
        raise WireError(f"{named} has elements that are no UTF-8, which JSON cannot have; binary data can carry them")
    return texts


def _array(value: Any) -> tuple[Array, str]:
    array = np.asarray(value)
    datatype = datatype_of(array.dtype)
    return array, datatype


def _raw(array: Array, datatype: str, name: str) -> bytes:
    if datatype == BYTES:
        return packed(as_bytes(array.reshape(-1).tolist(), f'input "{name}"'))
    return to_buffer(array)


def _arrays(message: Message, contents: Sequence[Any]) -> dict[str, Array]:
    return {tensor.name: _output(tensor, data) for tensor, data in zip(message.tensors, contents, strict=True)}


def _output(tensor: Tensor, data: Any) -> Array:
    if tensor.datatype != BYTES:
        return array_from(tensor) if data is None else array_of(data, tensor.datatype, tensor.shape)
    elements: Sequence[str | bytes]
    if data is None:
        elements = texts_from(tensor)
    else:
        raw = unpacked(data, tensor.count, tensor.named)
        texts = as_texts(raw)
        elements = raw if texts is None else texts
    array = np.empty(tensor.count, object)
    array[:] = elements
    return array.reshape(tensor.shape)
