"""The few fields of gRPC messages that the listener reads and writes itself; all others are the codec's."""

from __future__ import annotations

from typing import Final, NamedTuple

from connectors.codecs.inference.grpcwire import LENGTH, Writer, fields, text
from pipelines.errors import WireError

MOST_FIELDS: Final = 10_000
"""A message with more fields, at its top, is refused: to read them would keep other clients waiting."""
_NAMES: Final = ("model_name", "model_version", "id")


class Asked(NamedTuple):
    """Who a request is for, and its id."""

    model: str
    version: str
    id: str


def asked(message: bytes) -> Asked:
    """The fields 1 to 3 of a `ModelInferRequest`, in whatever order they come. Name and version have these numbers in
    the other requests, too. Raises `WireError` for bytes that are no message.
    """
    texts = ["", "", ""]
    for count, (number, kind, value) in enumerate(fields(memoryview(message))):
        if count == MOST_FIELDS:
            raise WireError(f"the message has more than {MOST_FIELDS} fields")
        if number < 4 and kind == LENGTH:
            texts[number - 1] = text(value, _NAMES[number - 1])
    return Asked(*texts)


def streamed(response: bytes) -> bytes:
    """A `ModelStreamInferResponse` with this `ModelInferResponse`."""
    writer = Writer()
    writer.length(2, response)
    return writer.bytes()


def streamed_error(error: str, request_id: str) -> bytes:
    """A `ModelStreamInferResponse` that says what was wrong with the request of this id."""
    response, writer = Writer(), Writer()
    if request_id:
        response.length(3, request_id)
    writer.length(1, error.encode("utf-8", "replace"))
    writer.length(2, response.bytes())
    return writer.bytes()
