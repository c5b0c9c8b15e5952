"""A first request to a service, as a line of curl: zeros of the right shape where the model's inputs are known."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from connectors.codecs.inference.datatypes import BYTES, datatype_of
from connectors.http.endpoint.config import HttpSourceConfig
from pipelines.executors.ports import Ports
from pipelines.runners.models.model import Port

VARIABLE: Final = "$TOKEN"
"""What stands for the token in a line for a shell: a variable."""
MOST_ELEMENTS: Final = 64
"""A request of more numbers than this has them as bytes, which `head` makes."""
_ANY: Final = 4
"""The length of an axis that the model leaves open, other than that of samples."""


def url_of(config: HttpSourceConfig, service: str, address: tuple[str, int] | None = None) -> str:
    """The URL at which a service answers, without the verb of the protocol; `address` is where it really listens."""
    host, _, port = config.listen.rpartition(":")
    if address is not None:
        port = str(address[1])
    # An address that stands for all is none that clients can ask.
    host = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)  # noqa: S104 - it is compared, not bound
    name = quote(service, safe="")
    path = f"v2/models/{name}" if _codec(config) == "inference" else f"v1/{name}"
    return f"{'http' if config.tls is None else 'https'}://{host}:{port}/{path}"


def curl(config: HttpSourceConfig, url: str, ports: Ports, token: str = VARIABLE) -> str:
    """A command that asks the service at this URL for a result, as a line for a shell.

    `token` stands for the token, if there is one, in what the shell puts together: the token itself is not shown.
    """
    line = _curl(config, url, ports) if _codec(config) == "inference" else _curl_plain(config, url, ports)
    needed = config.token is not None and config.token.get_secret_value()
    return f'{line} -H "authorization: Bearer {token}"' if needed else line


def ports_in_words(ports: Ports) -> str:
    """What a request brings and an answer has: `takes image uint8 [N, 8, 8]; gives label`; empty if not known."""
    texts = []
    for verb, given in (("takes", ports.inputs), ("gives", ports.outputs)):
        if given:
            texts.append(f"{verb} {', '.join(f'{port.name} {port}' for port in given)}")
    if ports.optional:
        texts.append(f"may get {', '.join(f'{port.name} {port}' for port in ports.optional)}")
    return "; ".join(texts)


def _codec(config: HttpSourceConfig) -> str:
    return config.codec if isinstance(config.codec, str) else str(config.codec["type"])


def _curl(config: HttpSourceConfig, url: str, ports: Ports) -> str:
    inputs: list[dict[str, Any]] = [
        {"name": port.name, "shape": list(_shape(port)), "datatype": datatype_of(port.dtype)}
        for port in ports.inputs or ()
    ]
    if ports.inputs is None:
        inputs = [{"name": "NAME", "shape": [1, 1], "datatype": "FP32"}]
    counts = [math.prod(item["shape"]) for item in inputs]
    if sum(counts) <= MOST_ELEMENTS or any(item["datatype"] == BYTES for item in inputs):
        for item, count in zip(inputs, counts, strict=True):
            item["data"] = [_element(item["datatype"])] * count
        return _command(config, f"{url}/infer", "-d", _json({"inputs": inputs}))
    sizes = [
        math.prod(item["shape"]) * port.dtype.itemsize for item, port in zip(inputs, ports.inputs or (), strict=True)
    ]
    for item, size in zip(inputs, sizes, strict=True):
        item["parameters"] = {"binary_data_size": size}
    document = _json({"inputs": inputs})
    header = f"inference-header-content-length: {len(document.encode())}"
    line = _command(config, f"{url}/infer", "-H", header, "--data-binary", "@-")
    return f"(printf %s {shlex.quote(document)}; head -c {sum(sizes)} /dev/zero) | {line}"


def _curl_plain(config: HttpSourceConfig, url: str, ports: Ports) -> str:
    kind = _codec(config)
    if kind not in ("json", "konduit-json", "konduit"):
        return _command(config, url, "--data-binary", "@FILE")
    values = {}
    for port in ports.inputs or () if kind == "json" else ():
        shape = _shape(port)[1:]
        if math.prod(shape) <= MOST_ELEMENTS:
            values[port.name] = _nested(shape, _element(datatype_of(port.dtype)))
    return _command(config, url, "-H", "content-type: application/json", "-d", _json(values))


def _command(config: HttpSourceConfig, url: str, *options: str) -> str:
    words = ["curl", url, *options]
    line = " ".join(map(shlex.quote, words))
    if config.tls is not None:
        line += " -k" if config.tls.cert is None else f" --cacert {shlex.quote(str(config.tls.cert))}"
    return line


def _shape(port: Port) -> Sequence[int]:
    """The shape for one sample; that of a port of unknown rank is one element."""
    if port.shape is None:
        return (1,)
    first, *others = port.shape if port.shape else (1,)
    inner = [length if isinstance(length, int) and length > 0 else _ANY for length in others]
    return (first if isinstance(first, int) and first > 0 else 1, *inner)


def _element(datatype: str) -> object:
    if datatype == BYTES:
        return "text"
    return False if datatype == "BOOL" else 0


def _nested(shape: Sequence[int], element: object) -> object:
    return element if not shape else [_nested(shape[1:], element) for _ in range(shape[0])]


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
