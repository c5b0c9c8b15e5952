"""What the Open Inference Protocol says of a server and its models."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from connectors.http.endpoint.model import ServedModel
from pipelines.errors import DISTRIBUTION
from pipelines.runners.models.model import Port

PLATFORM: Final = "streamer"
EXTENSIONS: Final = ("binary_tensor_data",)
REPOSITORY: Final = "model_repository"
"""The extension by which models are loaded and unloaded."""
_NAMES: Final = {"b1": "BOOL", "f2": "FP16", "f4": "FP32", "f8": "FP64", "O": "BYTES"}


def datatype_of(dtype: np.dtype[Any]) -> str:
    """The protocol's name of an element type: `FP32` of float32, `BYTES` of strings."""
    if dtype.name == "bfloat16":
        return "BF16"
    if dtype.kind in "OUS":
        return "BYTES"
    if dtype.kind in "iu":
        return f"{'U' if dtype.kind == 'u' else ''}INT{dtype.itemsize * 8}"
    return _NAMES.get(f"{dtype.kind}{dtype.itemsize}", dtype.name.upper())


def shape_of(port: Port) -> list[int]:
    """The shape of a port, -1 for a length that is not fixed."""
    return [length if isinstance(length, int) else -1 for length in port.shape or (None,)]


def server(*, controlled: bool = False) -> dict[str, Any]:
    """The name of this server, its version, and the extensions of the protocol that it offers.

    `controlled`: requests may load and unload models.
    """
    extensions = [*EXTENSIONS, REPOSITORY] if controlled else [*EXTENSIONS]
    return {"name": PLATFORM, "version": importlib.metadata.version(DISTRIBUTION), "extensions": extensions}


def model(served: ServedModel) -> dict[str, Any]:
    """The inputs and outputs of a model, none where its pipeline does not know them."""
    ports = served.served.ports
    return {
        "name": served.name,
        "versions": served.versions,
        "platform": PLATFORM,
        "inputs": [
            *_tensors(ports.inputs or ()),
            # Not of the protocol; by it `streamer.Client` knows which inputs may be left out.
            *({**tensor, "optional": True} for tensor in _tensors(ports.optional)),
        ],
        "outputs": _tensors(ports.outputs or ()),
    }


def configuration(served: ServedModel) -> dict[str, Any]:
    """The same as Triton's configuration of a model, as far as its clients read it."""
    ports = served.served.ports
    optional = {port.name for port in ports.optional}
    return {
        "name": served.name,
        "platform": PLATFORM,
        "backend": PLATFORM,
        "max_batch_size": 0,
        "input": [
            {**tensor, "optional": port.name in optional}
            for port, tensor in zip(
                (*(ports.inputs or ()), *ports.optional),
                _configured((*(ports.inputs or ()), *ports.optional)),
                strict=True,
            )
        ],
        "output": _configured(ports.outputs or ()),
    }


def _tensors(ports: Iterable[Port]) -> list[dict[str, Any]]:
    return [{"name": port.name, "datatype": datatype_of(port.dtype), "shape": shape_of(port)} for port in ports]


def _configured(ports: Iterable[Port]) -> list[dict[str, Any]]:
    tensors: list[dict[str, Any]] = []
    for port in ports:
        kind = datatype_of(port.dtype)
        kind = "STRING" if kind == "BYTES" else kind
        tensors.append({"name": port.name, "data_type": f"TYPE_{kind}", "dims": shape_of(port)})
    return tensors
