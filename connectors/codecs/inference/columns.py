"""Tensors of many requests as columns: of equal datatype and shape one array, made at once of all their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from connectors.codecs.inference.datatypes import BYTES, array_of
from connectors.codecs.inference.elements import as_texts, unpacked
from connectors.codecs.inference.reader import Elements, Request
from connectors.codecs.inference.tensors import Tensor
from pipelines.data.columns import Column, DenseColumn, RaggedColumn
from pipelines.data.sparsecolumn import columns_of
from pipelines.errors import WireError
from pipelines.values import ValueType
from pipelines.values.lists import TypedList


class Part(NamedTuple):
    """A tensor of a request and its data."""

    tensor: Tensor
    data: Elements


def alike(requests: Sequence[Request]) -> dict[str, Column] | None:
    """The columns of requests that are the same but for their numbers, as those of one client are; `None`: they are
    not, or hold BYTES."""
    if not requests:
        return None
    head = requests[0].head
    if any(request.head is not head for request in requests) or head.has_strings:
        return None
    made: dict[str, Column] = {}
    for at, tensor in enumerate(head.tensors):
        # One request's data stay where they are.
        data = [request.contents[at] for request in requests]
        joined: Any = data[0] if len(data) == 1 else b"".join(data)  # type: ignore[arg-type]
        made[tensor.name] = DenseColumn(array_of(joined, tensor.datatype, (len(data), *tensor.shape)))
    return made


def values_of(requests: Sequence[Request], failed: dict[int, Exception]) -> list[Sequence[Any]]:
    """The tensors of each request as values, for BYTES, and as parts for others.

    The errors of requests whose BYTES cannot be read are put into `failed`, by position.
    """
    rows: list[Sequence[Any]] = []
    for position, request in enumerate(requests):
        try:
            rows.append(
                [
                    _strings(tensor, data) if tensor.datatype == BYTES else Part(tensor, data)
                    for tensor, data in zip(request.head.tensors, request.contents, strict=True)
                ]
            )
        except WireError as error:
            failed[position] = error
            rows.append([])
    return rows


def columns(requests: Sequence[Request], rows: Sequence[Sequence[Any]]) -> dict[str, Column]:
    """The columns of all tensors of these requests, whose values are `rows`."""
    if not requests:
        return {}
    names = _names(requests[0])
    if all(request.head is requests[0].head or _names(request) == names for request in requests):
        return {name: _column([row[at] for row in rows]) for at, name in enumerate(names)}
    entries = [dict(zip(_names(request), row, strict=True)) for request, row in zip(requests, rows, strict=True)]
    everywhere = set(names).intersection(*entries)
    made = {name: _column([entry[name] for entry in entries]) for name in names if name in everywhere}
    others = [{name: _value(part) for name, part in entry.items() if name not in everywhere} for entry in entries]
    return made | columns_of(others)


def _names(request: Request) -> list[str]:
    return [tensor.name for tensor in request.head.tensors]


def _column(parts: Sequence[Any]) -> Column:
    """The column of a value, or part, of each row."""
    if not all(isinstance(part, Part) for part in parts):
        return Column.of(list(map(_value, parts)))
    first = parts[0].tensor
    datatype, shape = first.datatype, first.shape
    if all(tensor is first or (tensor.datatype == datatype and tensor.shape == shape) for tensor, _ in parts):
        return DenseColumn(array_of(_joined(parts), datatype, (len(parts), *shape)))
    if not shape or any(
        tensor.datatype != datatype or len(tensor.shape) != len(shape) or tensor.shape[1:] != shape[1:]
        for tensor, _ in parts
    ):
        return Column.of(list(map(_value, parts)))
    splits = np.zeros(len(parts) + 1, np.int64)
    np.cumsum([tensor.shape[0] for tensor, _ in parts], out=splits[1:])
    return RaggedColumn(array_of(_joined(parts), datatype, (int(splits[-1]), *shape[1:])), splits)


def _joined(parts: Sequence[Part]) -> Any:
    # One request's data stay where they are.
    return parts[0].data if len(parts) == 1 else b"".join([part.data for part in parts])  # type: ignore[misc]


def _value(part: Any) -> Any:
    if not isinstance(part, Part):
        return part
    return array_of(part.data, part.tensor.datatype, part.tensor.shape)  # type: ignore[arg-type]


def _strings(tensor: Tensor, data: Elements) -> Any:
    """A string or bytes for a tensor without axes; else lists of them, nested as its shape is. Raises `WireError`."""
    elements: list[Any]
    if isinstance(data, list):
        elements = data
    else:
        raw = unpacked(data, tensor.count, tensor.named)
        elements = as_texts(raw) or raw
    if not tensor.shape:
        return elements[0]
    return _nested(elements, tensor.shape)


def _nested(elements: list[Any], shape: Sequence[int]) -> list[Any]:
    # From the innermost axis outwards; an empty list says that its elements would be strings.
    for axis in range(len(shape) - 1, 0, -1):
        length = shape[axis]
        if not length:
            rows = 1
            for outer in shape[:axis]:
                rows *= outer
            elements = [TypedList(ValueType.STRING) for _ in range(rows)]
        else:
            elements = [elements[start : start + length] for start in range(0, len(elements), length)]
    return elements or TypedList(ValueType.STRING)
