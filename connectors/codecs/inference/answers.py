"""`Answers`: the results of a batch as answers, each in the form that its request asks for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any, Final

import msgspec

from connectors.codecs.inference.grpcwire import LENGTH, Writer, written
from connectors.codecs.inference.message import Ask
from connectors.codecs.inference.outputs import Output
from connectors.codecs.inference.wire import HEADER_LENGTH
from connectors.records import Header
from pipelines.data.batch import Batch
from pipelines.errors import WireError

JSON_HEADERS: Final[tuple[Header, ...]] = (("content-type", b"application/json"),)
_GRPC_HEADERS: Final[tuple[Header, ...]] = (("content-type", b"application/grpc"),)
_BINARY: Final[Header] = ("content-type", b"application/octet-stream")

_encode: Final = msgspec.json.Encoder().encode
_MOST: Final = 20


class Answers:
    """Writes answers. A row whose values have no form in the protocol, or that lacks an output asked for, fails."""

    def __init__(
        self,
        batch: Batch,
        failed: dict[int, Exception],
        native: ModuleType | None,
        version: str,
        versions: Sequence[str] | None = None,
    ) -> None:
        """The errors of rows that cannot be decoded are put into `failed`; `native` is the compiled extension.

        `version` is that of the model which made the results, `versions` that of each row where there are several;
        empty: as each request says.
        """
        self._failed = failed
        self._version = version
        self._versions = versions
        self._outputs = {name: Output(name, batch.column(name), failed, native) for name in batch.columns}
        outputs = list(self._outputs.values())
        self._whole = outputs if all(output.is_whole for output in outputs) else None

    def write(self, row: int, ask: Ask) -> tuple[bytes, Sequence[Header]]:
        """The answer of a row, and the headers that describe it. Raises `WireError`."""
        if ask.outputs is None and self._whole is not None and not (ask.all_binary or ask.binary or ask.form == "grpc"):
            # What most ask for: everything, as JSON.
            return self._opened(row, ask) + b",".join(
                [output.listed(row) for output in self._whole]
            ) + b"]}", JSON_HEADERS
        outputs = self._asked(row, ask)
        return self._message(row, ask, outputs) if ask.form == "grpc" else self._body(row, ask, outputs)

    def _asked(self, row: int, ask: Ask) -> list[Output]:
        if ask.outputs is None:
            return [output for output in self._outputs.values() if output.has(row)]
        chosen: list[Output] = []
        for name in ask.outputs:
            output = self._outputs.get(name)
            if output is None or not output.has(row):
                names = [other.name for other in self._outputs.values() if other.has(row)]
                there = ", ".join(names[:_MOST]) + (", ..." if len(names) > _MOST else "")
                raise WireError(f'the result has no output "{name}"; it has {there or "none"}')
            chosen.append(output)
        return chosen

    def _body(self, row: int, ask: Ask, outputs: list[Output]) -> tuple[bytes, Sequence[Header]]:
        entries: list[bytes] = []
        parts: list[bytes | memoryview] = []
        for output in outputs:
            if ask.binary.get(output.name, ask.all_binary):
                data = output.data(row)
                entries.append(b'%b"parameters":{"binary_data_size":%d}}' % (output.entry(row), len(data)))
                parts.append(data)
            else:
                entries.append(output.listed(row))
        text = self._opened(row, ask) + b",".join(entries) + b"]}"
        if not parts:
            return text, JSON_HEADERS
        return b"".join([text, *parts]), (_BINARY, (HEADER_LENGTH, b"%d" % len(text)))

    def _opened(self, row: int, ask: Ask) -> bytes:
        """The JSON of an answer up to its outputs."""
        opening = _opening(ask.model, self._version_of(row, ask))
        return opening + b'"outputs":[' if not ask.id else b'%b"id":%b,"outputs":[' % (opening, _encode(ask.id))

    def _message(self, row: int, ask: Ask, outputs: list[Output]) -> tuple[bytes, Sequence[Header]]:
        parts: list[Any] = [_grpc_opening(ask.model, self._version_of(row, ask))]
        if ask.id:
            _put(parts, 3, ask.id.encode())
        for output in outputs:
            _put(parts, 5, output.head(row))
        for output in outputs:
            _put(parts, 6, output.data(row))
        return b"".join(parts), _GRPC_HEADERS

    def _version_of(self, row: int, ask: Ask) -> str:
        return (self._version if self._versions is None else self._versions[row]) or ask.version


def _put(parts: list[Any], number: int, data: bytes | memoryview) -> None:
    parts += (written(number << 3 | LENGTH), written(len(data)), data)


@lru_cache(256)
def _opening(model: str, version: str) -> bytes:
    said = b'"model_version":%b,' % _encode(version) if version else b""
    return b'{"model_name":%b,%b' % (_encode(model), said)


@lru_cache(256)
def _grpc_opening(model: str, version: str) -> bytes:
    writer = Writer()
    if model:
        writer.length(1, model)
    if version:
        writer.length(2, version)
    return writer.bytes()
