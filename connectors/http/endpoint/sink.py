"""`HttpSink`: results to the clients whose requests they answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from connectors.codecs.registry import codec_config
from connectors.http.endpoint.config import HttpSinkConfig
from connectors.http.endpoint.konduiterror import konduit_error
from connectors.http.endpoint.request import Answer
from connectors.http.endpoint.source import HttpSource
from connectors.measures import Measure
from connectors.records import Header, Ints, Messages
from connectors.sink import Lost, Refused, Sink
from connectors.source import Source
from pipelines.errors import ConnectorError

CONTENT_TYPES: Final[Mapping[str, bytes]] = {
    "inference": b"application/json",
    "json": b"application/json",
    "konduit-json": b"application/json",
    "text": b"text/plain; charset=utf-8",
    "csv": b"text/csv; charset=utf-8",
    "protodata": b"application/x-protobuf",
    "msgpack": b"application/msgpack",
}
"""The content type of answers by the type of their codec, where the codec does not say it in a header."""
CLIENTS_FAULT: Final = frozenset(
    {"WireError", "DataError", "ValueNotFoundError", "WrongTypeError", "ReservedKeyError", "KeyNotInBatchError"}
)
"""Classes of errors that a request is to blame for, in whichever step."""
NOT_OFFERED: Final = "NotOfferedError"
"""The class of the error for a request that asks for what there is not here."""
MOST_TEXT: Final = 2000
MOST_KNOWN: Final = 100
_STEP, _ERROR, _TEXT = "streamer-step", "streamer-error", "streamer-text"


class HttpSink(Sink):
    """Answers requests, which it knows by the position of their records. An answer is confirmed when it was handed to
    the thread that writes it, or its client has gone.

    As the sink of failures it answers `{"error": TEXT}`: 400 if the request is to blame, else 500 with the step.
    """

    def __init__(self, config: HttpSinkConfig) -> None:
        self.name = config.label
        self._config = config
        codec = codec_config(config.codec).type
        self._kind = (b"content-type", CONTENT_TYPES.get(codec, b"application/octet-stream"))
        self._error = konduit_error if codec == "konduit" else error_answer
        self._answers_failures = config.failures
        self._known: dict[Sequence[Header], Sequence[tuple[bytes, bytes]]] = {}
        """What was made of headers that codecs give to answer after answer."""
        self._source: HttpSource | None = None
        self._confirmed: list[Ints] = []

    def attach(self, sources: Sequence[Source]) -> None:
        """See `Sink.attach`: it answers the clients of its source."""
        name = (self._config.takes_from or ("",))[0]
        self._source = next((item for item in sources if isinstance(item, HttpSource) and item.name == name), None)

    def open(self) -> None:
        """Be ready; clients come once the source listens."""

    def send(self, messages: Messages, deadline: float) -> Refused:
        """See `Sink.send`. Raises `ConnectorError` without its source."""
        if self._source is None or messages.positions is None:
            raise ConnectorError(f"{self.name} has no http source whose clients it could answer")
        answers = self._errors(messages) if self._answers_failures else self._answers(messages)
        self._source.answer(zip(messages.positions.tolist(), answers, strict=True))
        self._confirmed.append(messages.rows)
        return {}

    def barrier(self, deadline: float) -> Lost:
        """See `Sink.barrier`: all is confirmed already."""
        return {}

    def confirmed(self) -> list[Ints]:
        """See `Sink.confirmed`."""
        confirmed, self._confirmed = self._confirmed, []
        return confirmed

    def behind(self) -> float:
        """See `Sink.behind`: never."""
        return 0.0

    def close(self) -> None:
        """Nothing: the source closes the connections."""

    def metrics(self) -> Sequence[Measure]:
        """None: the source counts answers."""
        return ()

    def _answers(self, messages: Messages) -> Iterator[Answer]:
        several = self._several(messages)
        plain = (self._kind,)
        rows = messages.headers
        for at, value in enumerate(messages.values):
            if several and (count := several.get(at)) is not None:
                yield Answer.refusal(500, _too_many(count))
                continue
            given = None if rows is None else rows[at]
            yield Answer(200, plain if given is None else self._headers(given), b"" if value is None else value)

    def _headers(self, given: Sequence[Header]) -> Sequence[tuple[bytes, bytes]]:
        if not isinstance(given, tuple):
            return self._written(given)
        headers = self._known.get(given)
        if headers is None:
            headers = self._written(given)
            if len(self._known) < MOST_KNOWN:
                self._known[given] = headers
        return headers

    def _written(self, given: Sequence[Header]) -> list[tuple[bytes, bytes]]:
        headers = [
            (name.lower().encode("latin-1", "replace"), b"" if value is None else value) for name, value in given
        ]
        return headers if any(name == b"content-type" for name, _ in headers) else [self._kind, *headers]

    def _several(self, messages: Messages) -> dict[int, int]:
        """By index of a message how many there are for its request, where there is more than one."""
        rows = messages.rows
        if messages.row_range is not None or len(rows) < 2:
            return {}
        _, first, counts = np.unique(rows, return_inverse=True, return_counts=True)
        return {at: int(counts[number]) for at, number in enumerate(first.tolist()) if counts[number] > 1}

    def _errors(self, messages: Messages) -> Iterator[Answer]:
        for headers in messages.headers or ():
            # Our headers come first: later ones are the client's.
            facts: dict[str, str] = {}
            for name, value in headers or ():
                facts.setdefault(name, (value or b"").decode("utf-8", "replace"))
            yield self._error(facts.get(_STEP, ""), facts.get(_ERROR, ""), facts.get(_TEXT, "")[:MOST_TEXT])


def error_answer(step: str, error: str, text: str) -> Answer:
    """The answer to a request that failed in `step` with an error of the class `error`."""
    if error == NOT_OFFERED:
        return Answer.refusal(501, text)
    if error in CLIENTS_FAULT:
        return Answer.refusal(400, text)
    return Answer.refusal(500, f"step {step}: {error}: {text}" if step else f"{error}: {text}")


def _too_many(count: int) -> str:
    return f"the pipeline made {count} results of the request, and an answer has one"
