"""`Payloads`: the payloads of requests and answers over topics, by a codec as service files name it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from connectors.codecs.inference.wire import HEADER_LENGTH, read_answer, write_request
from connectors.codecs.registry import codec_of
from connectors.message import Message, records_of
from connectors.records import Header
from pipelines import Batch, Data
from pipelines.errors import WireError
from pipelines.executors.ports import Ports
from streamer.client.inputs import Inputs

INFERENCE: Final = "inference"
PROTODATA: Final = "protodata"
_SINGLY: Final = 8
"""So many messages are read one by one; more, at once, cost less by the codec."""
_TOMBSTONE: Final = "the answer has no payload"


class Payloads(ABC):
    """Writes requests and reads answers. From any thread."""

    @staticmethod
    def of(setting: str | Mapping[str, Any]) -> Payloads:
        """Those of a `codec` field. Raises `DefinitionError` and `MissingPackageError`."""
        name = setting if isinstance(setting, str) else setting.get("type")
        if name == INFERENCE:
            return InferencePayloads()
        return ProtoDataPayloads(setting) if setting == PROTODATA else CodecPayloads(setting)

    @abstractmethod
    def written(self, values: Data) -> tuple[bytes, Sequence[Header]]:
        """The payload of a request, and the headers that describe it. Raises `DataError` and `WireError`."""

    @abstractmethod
    def read(self, messages: Sequence[Message]) -> list[Data | Exception]:
        """The values of these answers, or the error of one that cannot be read."""


class CodecPayloads(Payloads):
    """By any codec: it writes values as a sink does, and reads them as a source does."""

    def __init__(self, setting: str | Mapping[str, Any]) -> None:
        self._codec = codec_of(setting)
        self._lock = threading.Lock()

    def written(self, values: Data) -> tuple[bytes, Sequence[Header]]:
        """See `Payloads.written`."""
        with self._lock:
            encoded = self._codec.encode(Batch.of([values]))
        for error in encoded.failed.values():
            raise error
        headers = None if encoded.headers is None else encoded.headers[0]
        return bytes(encoded.values[0]), headers or ()

    def read(self, messages: Sequence[Message]) -> list[Data | Exception]:
        """See `Payloads.read`."""
        with self._lock:
            decoded = self._codec.decode(records_of(messages, "answers"), None)
        results: list[Data | Exception] = [WireError(_TOMBSTONE)] * len(messages)
        for row, error in decoded.failed.items():
            results[row] = error
        # Without its origin: where an answer came from is nothing that a caller needs to look up.
        batch = decoded.batch.with_origin(None)
        for row, data in zip(np.asarray(batch.rows).tolist(), batch.to_list(), strict=True):
            results[row] = data
        return results


class ProtoDataPayloads(CodecPayloads):
    """By the codec protodata without options.

    A codec is made for batches: `Data` itself reads and writes a single record in a tenth of the time, which is a good
    part of that of a call.
    """

    def written(self, values: Data) -> tuple[bytes, Sequence[Header]]:
        """See `Payloads.written`."""
        return values.to_bytes(), ()

    def read(self, messages: Sequence[Message]) -> list[Data | Exception]:
        """See `Payloads.read`."""
        if len(messages) > _SINGLY:
            return super().read(messages)
        return [_data(message.value) for message in messages]


class InferencePayloads(Payloads):
    """Requests and answers of the Open Inference Protocol, with binary tensors."""

    def __init__(self) -> None:
        self._inputs = Inputs("the service", Ports())

    def written(self, values: Data) -> tuple[bytes, Sequence[Header]]:
        """See `Payloads.written`."""
        body, length = write_request(self._inputs.tensors(values).arrays)
        return body, () if length is None else ((HEADER_LENGTH, str(length).encode()),)

    def read(self, messages: Sequence[Message]) -> list[Data | Exception]:
        """See `Payloads.read`."""
        return [self._result(message) for message in messages]

    def _result(self, message: Message) -> Data | Exception:
        if message.value is None:
            return WireError(_TOMBSTONE)
        length = next((value for name, value in message.headers if name.lower() == HEADER_LENGTH), None)
        try:
            outputs = read_answer(message.value, None if length is None else int(length))
        except ValueError as error:
            return error
        return self._inputs.result(outputs, single=False)


def _data(payload: bytes | None) -> Data | Exception:
    if payload is None:
        return WireError(_TOMBSTONE)
    try:
        return Data.from_bytes(payload)
    except WireError as error:
        return error
