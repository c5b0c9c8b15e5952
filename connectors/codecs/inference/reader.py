"""`Reader`: payloads to requests, in whichever of the protocol's forms they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Final, NamedTuple

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

GRPC: Final = b"application/grpc"
"""How the content type of messages of gRPC begins."""
VERSION: Final = "1"
"""The version of every model."""

Elements = bytes | memoryview | list[str] | Any
"""The data of a tensor as a binary part has them; the texts of a BYTES tensor, if they came as JSON.
Memory of the compiled extension, too."""

_LENGTHS: Final = frozenset({len("content-type"), len(HEADER_LENGTH)})
"""Of the names of headers that are read."""
_MOST_KNOWN: Final = 64
_LONGEST_KNOWN: Final = 4096


@dataclass(frozen=True, slots=True)
class Head:
    """What a request says besides the data of its tensors."""

    tensors: tuple[Tensor, ...]
    ask: Ask
    metadata: Data | None
    """Its parameters."""
    samples: int
    """How many samples the request brings: the first length of its first tensor, 1 at least."""
    has_strings: bool
    """Whether there is a tensor of BYTES."""


class Request(NamedTuple):
    """A request."""

    head: Head
    ask: Ask
    contents: Sequence[Elements]


class _Known(dict[bytes, Head]):
    """What was made of the last requests, by all of them that is not data."""

    def keep(self, text: bytes, head: Head) -> None:
        """Remember it, unless the text is long."""
        if len(text) > _LONGEST_KNOWN:
            return
        if len(self) >= _MOST_KNOWN:
            self.clear()
        self[text] = head


class Reader:
    """Reads requests and checks them against the pipeline that they are for.

    Clients send the same again and again but for ids and data, so that all else of the last requests is kept.
    """

    def __init__(self, most_bytes: int, native: ModuleType | None) -> None:
        """`native` is the compiled extension, which takes requests in JSON apart; without it Python reads them."""
        self._most = most_bytes
        self._take_apart = None if native is None else native.inference_request
        self._model = ""
        self._ports = Ports()
        # Texts and messages are apart, as bytes of one form may mean something else in another.
        self._texts = _Known()
        self._counted = _Known()
        self._messages = _Known()

    def serves(self, served: Served) -> None:
        """The pipeline, and the name of the model."""
        self._model = served.service
        self._ports = served.ports
        self._texts, self._counted, self._messages = _Known(), _Known(), _Known()

    def read(self, payload: bytes | memoryview, headers: Sequence[Header] | None) -> Request:
        """The request of a record with this payload and these headers. Raises `WireError`."""
        if len(payload) > self._most:
            raise WireError(f"the payload has {len(payload)} bytes, and at most {self._most} can be read (max_bytes)")
        length: bytes | None = None
        for name, value in headers or ():
            if len(name) not in _LENGTHS:
                continue
            lowered = name.lower()
            if lowered == HEADER_LENGTH:
                length = value or b""
            elif lowered == "content-type" and value is not None and value.startswith(GRPC):
                return self._message(bytes(payload))
        return self._text(bytes(payload)) if length is None else self._body(payload, length)

    def _message(self, payload: bytes) -> Request:
        parts = grpcmessage.split(memoryview(payload))
        known = None if parts is None else self._messages.get(parts.rest)
        if parts is not None and known is not None:
            head = known
            for tensor, data in zip(head.tensors, parts.raw, strict=True):
                tensor.check_bytes(len(data))
            return Request(head, head.ask.with_id(parts.id), parts.raw)
        message, contents = grpcmessage.read_request(payload)
        head = self._checked(message)
        if parts is not None:
            self._messages.keep(parts.rest, head)
        return Request(head, head.ask, contents)

    def _text(self, text: bytes) -> Request:
        head, ask, lists = self._taken_apart(text)
        if lists and len(lists) == len(head.tensors):
            return Request(head, ask or head.ask, lists)
        nothing = memoryview(b"")
        return Request(
            head, ask or head.ask, _contents(head.tensors, sections(head.tensors, nothing, "request"), lists)
        )

    def _body(self, payload: bytes | memoryview, length: bytes) -> Request:
        cut = _cut(length, len(payload))
        if cut == 0:
            return self._bytes_alone(memoryview(payload))
        if cut == len(payload):
            return self._text(bytes(payload))
        head, ask, lists = self._taken_apart(bytes(payload[:cut]))
        rest = memoryview(payload)[cut:]
        return Request(head, ask or head.ask, _contents(head.tensors, sections(head.tensors, rest, "request"), lists))

    def _taken_apart(self, text: bytes) -> tuple[Head, Ask | None, Sequence[Elements]]:
        """What a request in JSON says, with its id, and the data of its inputs that were read."""
        parts = None if self._take_apart is None else self._take_apart(text)
        if parts is None:
            return self._head(text), None, ()
        rest, asked_id, lists = parts
        head = self._counted.get(rest)
        if head is None:
            try:
                head = self._checked(jsonmessage.read_request(rest, counted=True))
            except WireError:
                # Python reads all of it, so that the error is the same.
                return self._head(text), None, ()
            if not any(tensor.data is not None for tensor in head.tensors):
                self._counted.keep(rest, head)
        return head, None if asked_id is None else head.ask.with_id(asked_id), lists

    def _head(self, text: bytes) -> Head:
        head = self._texts.get(text)
        if head is None:
            head = self._checked(jsonmessage.read_request(text))
            if all(tensor.size is not None for tensor in head.tensors):
                self._texts.keep(text, head)
        return head

    def _bytes_alone(self, body: memoryview) -> Request:
        tensor, data = raw_tensor(body, self._ports)
        ask = Ask(all_binary=True, model=self._model, version=VERSION)
        return Request(Head((tensor,), ask, None, 1, tensor.datatype == BYTES), ask, [data])

    def _checked(self, message: Message) -> Head:
        for tensor in message.tensors:
            if is_reserved(tensor.name):
                raise WireError(f"{tensor.named}: this name is reserved; choose another one")
        check(message, self._ports)
        ask = message.ask
        if not ask.model or not ask.version:
            ask = replace(ask, model=ask.model or self._model, version=ask.version or VERSION)
        has_strings = any(tensor.datatype == BYTES for tensor in message.tensors)
        return Head(message.tensors, ask, _metadata(message), _samples(message.tensors), has_strings)


def _contents(
    tensors: Sequence[Tensor], parts: Sequence[memoryview | None], lists: Sequence[Elements]
) -> list[Elements]:
    """The data of each tensor: of the binary part, of the JSON, or of `lists`, which were read before."""
    contents: list[Elements] = []
    before = iter(lists)
    for tensor, part in zip(tensors, parts, strict=True):
        if part is not None:
            contents.append(part)
        elif tensor.data is None:
            contents.append(next(before))
        else:
            contents.append(texts_from(tensor) if tensor.datatype == BYTES else buffer_from(tensor))
    return contents


def _samples(tensors: Sequence[Tensor]) -> int:
    shape = tensors[0].shape if tensors else ()
    return max(shape[0], 1) if shape else 1


def _metadata(message: Message) -> Data | None:
    if not message.parameters:
        return None
    try:
        return Data(message.parameters)
    except DataError as error:
        raise WireError(f"the parameters of the request: {error}") from None


def _cut(length: bytes, size: int) -> int:
    """The number of bytes of JSON at the start of a body of `size` bytes, by the header that says it."""
    if not length.isdigit() or len(length) > 20:
        shown = length[:40].decode("utf-8", "replace")
        raise WireError(f"the header {HEADER_LENGTH} is no number of bytes: {shown}")
    cut = int(length)
    if cut > size:
        raise WireError(f"the body has {size} bytes, and its JSON would be {cut} by the header {HEADER_LENGTH}")
    return cut
