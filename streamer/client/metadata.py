"""Reads the metadata of a model, as the Open Inference Protocol has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from connectors.codecs.inference.datatypes import BYTES, array_of, known_datatype
from pipelines.errors import WireError
from pipelines.executors.ports import Ports
from pipelines.runners.models.model import Port


def ports_of(document: Any) -> Ports:
    """The ports in an answer to `GET /v2/models/NAME`; those that it does not have are not known.

    Raises `WireError` for an answer that is no metadata.
    """
    if not isinstance(document, Mapping):
        raise WireError("the server's metadata are no JSON object")
    inputs, outputs = document.get("inputs"), document.get("outputs")
    try:
        optional = [entry for entry in inputs or () if entry.get("optional") is True]
        required = None if not inputs else [entry for entry in inputs if entry not in optional]
        # Servers that do not know them say so by an empty list.
        return Ports(
            None if required is None else _ports(required),
            _ports(optional),
            None if not outputs else _ports(outputs),
        )
    except (AttributeError, TypeError, KeyError, ValueError) as error:
        raise WireError(f"the server's metadata describe no tensors: {error}") from None


def _ports(entries: Iterable[Mapping[str, Any]]) -> tuple[Port, ...]:
    return tuple(Port(str(entry["name"]), _dtype(entry["datatype"]), _shape(entry["shape"])) for entry in entries)


def _dtype(datatype: object) -> np.dtype[Any]:
    name = known_datatype(datatype)
    return np.dtype(object) if name == BYTES else array_of(b"", name, (0,)).dtype


def _shape(lengths: Any) -> tuple[int | None, ...]:
    return tuple(None if length is None or int(length) < 0 else int(length) for length in lengths)
