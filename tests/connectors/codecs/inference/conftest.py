"""Requests to a codec as a service has it: with the ports of a model, and headers as records have them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from connectors.codec import Codec, Decoded, Encoded
from connectors.codecs.inference.config import InferenceConfig
from connectors.codecs.inference.wire import HEADER_LENGTH
from connectors.records import Header, Lane, Records, Span
from connectors.source import Served
from pipelines.executors.ports import Ports
from pipelines.hotpath import HotPath
from pipelines.runners.models.model import Port

SIMPLE = Ports(
    (Port("INPUT0", np.dtype(np.int32), (None, 16)), Port("INPUT1", np.dtype(np.int32), ("N", 16))),
    (),
    (Port("OUTPUT0", np.dtype(np.int32), (None, 16)), Port("OUTPUT1", np.dtype(np.int32), (None, 16))),
)


class Asked:
    """Payloads that were read, and the answers to them."""

    def __init__(self, codec: Codec) -> None:
        self.codec = codec

    @staticmethod
    def binary(document: Any, *parts: bytes) -> tuple[bytes, list[Header]]:
        """A request with these binary tensors behind its JSON."""
        header = document if isinstance(document, bytes) else json.dumps(document).encode()
        return header + b"".join(parts), [(HEADER_LENGTH, b"%d" % len(header))]

    def read(self, *requests: bytes | tuple[bytes, Sequence[Header]] | None) -> Decoded:
        pairs = [request if isinstance(request, tuple) else (request, None) for request in requests]
        count = len(pairs)
        records = Records(
            "bus",
            [payload for payload, _ in pairs],
            None,
            np.arange(count, dtype=np.int64),
            [Span(Lane("bus", "0", 0), 0, count)],
            ["topic"],
            [0],
            0,
            headers=lambda: [headers for _, headers in pairs],
        )
        return self.codec.decode(records, None, 100)

    def error(self, request: bytes | tuple[bytes, Sequence[Header]], sound: bytes) -> str:
        """The error of a request, whose neighbour is read."""
        decoded = self.read(request, sound)
        assert decoded.batch.rows.tolist() == [101]
        assert list(decoded.failed) == [100], decoded.batch.to_list()
        return f"{type(decoded.failed[100]).__name__}: {decoded.failed[100]}"

    def answer(self, *requests: bytes | tuple[bytes, Sequence[Header]]) -> Encoded:
        """The answers of an identity pipeline."""
        decoded = self.read(*requests)
        assert not decoded.failed
        return self.codec.encode(decoded.batch)

    def json(self, request: bytes | tuple[bytes, Sequence[Header]]) -> Mapping[str, Any]:
        """The only answer, which is JSON."""
        encoded = self.answer(request)
        assert not encoded.failed
        assert encoded.headers == [(("content-type", b"application/json"),)]
        answer: Mapping[str, Any] = json.loads(encoded.values[0])
        return answer


@pytest.fixture
def identity(hot_path: HotPath) -> Asked:
    """A service whose inputs are not known."""
    codec = InferenceConfig().build()
    assert codec.hot_path.path == hot_path
    codec.serves(Served("identity", Ports()))
    return Asked(codec)


@pytest.fixture
def simple(hot_path: HotPath) -> Asked:
    """The service of a model."""
    codec = InferenceConfig().build()
    codec.serves(Served("simple", SIMPLE))
    return Asked(codec)


@pytest.fixture
def serving(hot_path: HotPath) -> Callable[[Ports], Asked]:
    """Makes the service of a model with these ports."""

    def made(ports: Ports) -> Asked:
        codec = InferenceConfig().build()
        codec.serves(Served("model", ports))
        return Asked(codec)

    return made
