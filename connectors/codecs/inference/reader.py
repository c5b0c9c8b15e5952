"""`Reader`: payloads to requests, in whichever of the protocol's forms they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from connectors.codecs.inference import grpcmessage, jsonmessage
from connectors.codecs.inference.datatypes import BYTES
from connectors.codecs.inference.jsondata import buffer_from, texts_from
from connectors.codecs.inference.message import Ask, Message
from connectors.codecs.inference.ports import check, raw_tensor
from connectors.codecs.inference.split import sections
from connectors.codecs.inference.tensors import Tensor
from connectors.codecs.inference.wire import HEADER_LENGTH
from connectors.records import Header
from connectors.source import Served
from pipelines.data.data import Data, is_reserved
from pipelines.errors import DataError, WireError
from pipelines.executors.ports import Ports

GRPC: Final = "application/grpc"
"""How the content type of messages of gRPC begins."""
VERSION: Final = "1"
"""The version of every model."""

Elements = bytes | memoryview | list[str]
"""The data of a tensor as a binary part has them; the texts of a BYTES tensor, if they came as JSON."""

_MOST_KNOWN: Final = 64
_LONGEST_KNOWN: Final = 4096


@dataclass(frozen=True, slots=True)
class Head:
    """What a request says besides the data of its tensors."""

    tensors: tuple[Tensor, ...]
    ask: Ask
    metadata: Data | None
    """Its parameters."""

    @property
    def samples(self) -> int:
        """How many samples the request brings: the first length of its first tensor, 1 at least."""
        shape = self.tensors[0].shape if self.tensors else ()
        return max(shape[0], 1) if shape else 1


@dataclass(frozen=True, slots=True)
class Request:
    """A request."""

    head: Head
    contents: Sequence[Elements]


class Reader:
    """Reads requests and checks them against the pipeline that they are for.

    Clients send the same JSON again and again before binary data that differ, so that of the last requests is kept.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._model = ""
        self._ports = Ports()
        self._known: dict[bytes, Head] = {}

    def serves(self, served: Served) -> None:
        """The pipeline, and the name of the model."""
        self._model = served.service
        self._ports = served.ports
        self._known = {}

    def read(self, payload: bytes, headers: Sequence[Header] | None) -> Request:
        """The request of a record with this payload and these headers. Raises `WireError`."""
        if len(payload) > self._most:
            raise WireError(f"the payload has {len(payload)} bytes, and at most {self._most} can be read (max_bytes)")
        length: bytes | None = None
        for name, value in headers or ():
            lowered = name.lower()
            if lowered == HEADER_LENGTH:
                length = value or b""
            elif lowered == "content-type" and value is not None and value.startswith(GRPC.encode()):
                return self._message(payload)
        return self._body(memoryview(payload), length)

    def _message(self, payload: bytes) -> Request:
        message, contents = grpcmessage.read_request(payload)
        return Request(self._checked(message), contents)

    def _body(self, body: memoryview, length: bytes | None) -> Request:
        if length is None:
            message = jsonmessage.read_request(body)
            return _with_data(self._checked(message), [None] * len(message.tensors))
        cut = _cut(length, len(body))
        if cut == 0:
            return self._bytes_alone(body)
        text = bytes(body[:cut])
        head = self._known.get(text)
        if head is None:
            head = self._checked(jsonmessage.read_request(text))
            if cut <= _LONGEST_KNOWN and all(tensor.size is not None for tensor in head.tensors):
                if len(self._known) >= _MOST_KNOWN:
                    self._known.clear()
                self._known[text] = head
        return _with_data(head, sections(head.tensors, body[cut:], "request"))

    def _bytes_alone(self, body: memoryview) -> Request:
        tensor, data = raw_tensor(body, self._ports)
        ask = Ask(all_binary=True, model=self._model, version=VERSION)
        return Request(Head((tensor,), ask, None), [data])

    def _checked(self, message: Message) -> Head:
        for tensor in message.tensors:
            if is_reserved(tensor.name):
                raise WireError(f"{tensor.named}: this name is reserved; choose another one")
        check(message, self._ports)
        ask = message.ask
        if not ask.model or not ask.version:
            ask = replace(ask, model=ask.model or self._model, version=ask.version or VERSION)
        return Head(message.tensors, ask, _metadata(message))


def _with_data(head: Head, parts: Sequence[memoryview | None]) -> Request:
    contents: list[Elements] = []
    for tensor, part in zip(head.tensors, parts, strict=True):
        if part is not None:
            contents.append(part)
        else:
            contents.append(texts_from(tensor) if tensor.datatype == BYTES else buffer_from(tensor))
    return Request(head, contents)


def _metadata(message: Message) -> Data | None:
    if not message.parameters:
        return None
    try:
        return Data(message.parameters)
    except DataError as error:
        raise WireError(f"the parameters of the request: {error}") from None


def _cut(length: bytes, size: int) -> int:
    """The number of bytes of JSON at the start of a body of `size` bytes, by the header that says it."""
    text = length.strip()
    shown = length[:40].decode("utf-8", "replace")
    if not text.isdigit() or len(text) > 20:
        raise WireError(f"the header {HEADER_LENGTH} is no number of bytes: {shown}")
    cut = int(text)
    if cut > size:
        raise WireError(f"the body has {size} bytes, and its JSON would be {cut} by the header {HEADER_LENGTH}")
    return cut
