"""`HttpSource`: requests over HTTP and gRPC as records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np

from connectors.http.endpoint.config import COLUMNS, HttpSourceConfig
from connectors.http.endpoint.counts import Counts
from connectors.http.endpoint.inbox import Inbox
from connectors.http.endpoint.listener import Listener
from connectors.http.endpoint.model import ServedModel
from connectors.http.endpoint.request import Answer, Request
from connectors.measures import Measure
from connectors.records import Header, Lane, Records, Span
from connectors.source import Event, LaneBegan, LaneEnded, Replays, Served, Settle, Source, SourceDown
from pipelines.data.columns import Column
from pipelines.errors import ConnectorError
from pipelines.executors.ports import Ports

DONE: Final = Answer(202, (), b"")
"""The answer of a service without a sink that answers: all its sinks have the request's results."""
DROPPED: Final = Answer.refusal(
    422, "the record has no result: a step of the pipeline dropped it, or it does not fit the where of the source"
)
STOPPING: Final = Answer.refusal(503, "the service is stopping; send the request again", (b"retry-after", b"1"))
SECRETS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})
"""Headers that no record has."""
MOST_NAMES: Final = 1000
"""How many names of headers are remembered."""


class HttpSource(Source):
    """Requests of clients to a port of this process. There is one lane; positions are the numbers of requests.

    A record's payload is the body of a request, its headers are those of HTTP or the metadata of gRPC, its key is the
    number of the request or the header that `key` names. A request is answered by the service's `http` sink. Without
    one it is answered (202) when it is acknowledged; so is one that a step dropped (422). Requests are kept until they
    are acknowledged, so `rewind` needs no client.

    The threads of the listener accept, read and answer, independent of `poll`.
    """

    replays = Replays.SESSION

    def __init__(self, config: HttpSourceConfig) -> None:
        self.name = config.label
        self.config = config
        self.counts = Counts()
        self._served = Served("service", Ports())
        self._opened: tuple[Listener, ServedModel, Inbox] | None = None
        self._lane = Lane(self.name, config.listen, 0)
        self._events: list[Event] = []

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that it listens on."""
        return self._open[0].address

    @property
    def grpc_address(self) -> tuple[str, int] | None:
        """Host and port of gRPC; `None` without it."""
        return self._open[0].grpc_address

    @property
    def served(self) -> Served:
        """What it knows of the service whose clients it serves."""
        return self._served

    def serves(self, served: Served) -> None:
        """See `Source.serves`."""
        self._served = served

    def open(self, settle: Settle | None = None, *, commits: bool = True) -> None:
        """Listen. Raises `ConnectorError` where an address cannot be had, or a certificate cannot be used."""
        config = self.config
        listener = Listener.of(config)
        inbox = Inbox(listener.loop, config.max_waiting, config.max_held)
        model = ServedModel(self._served.service, config, self._served, inbox, self.counts)
        listener.add(model)
        self._opened = listener, model, inbox
        self._events += [
            LaneBegan(self._lane, self._served.service, 0, 0),
            SourceDown(self.name, False, f"listening on {listener.place}"),
        ]

    def await_records(self, timeout: float) -> bool:
        """See `Source.await_records`."""
        return self._open[2].await_requests(timeout)

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        """See `Source.poll`."""
        requests = self._open[2].take(max_records, max_bytes, timeout)
        return self._records(requests) if requests else Records.empty(self.name)

    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None:
        """See `Source.acknowledge`. The requests below a position that nobody has answered are answered."""
        below = positions.get(self._lane)
        if below is not None:
            self._open[2].finish(below, DROPPED if self._served.answers else DONE)

    def is_awaited(self, positions: Mapping[Lane, int]) -> bool:
        """See `Source.is_awaited`: by clients that nobody has answered."""
        below = positions.get(self._lane)
        return below is not None and self._open[2].awaits(below)

    def rewind(self, lanes: Iterable[Lane]) -> None:
        """See `Source.rewind`."""
        if self._lane not in lanes:
            return
        self._events.append(LaneEnded(self._lane))
        self._lane = self._lane._replace(epoch=self._lane.epoch + 1)
        self._events.append(LaneBegan(self._lane, self._served.service, 0, self._open[2].again()))

    def events(self) -> list[Event]:
        """See `Source.events`."""
        if not self._events:
            return []
        events, self._events = self._events, []
        return events

    def finish(self) -> bool:
        """See `Source.finish`: new requests are refused, those that were accepted are run."""
        return self._opened is not None and self._opened[2].refuse()

    def wake(self) -> None:
        """See `Source.wake`."""
        if self._opened is not None:
            self._opened[2].wake()

    def answer(self, answers: Iterable[tuple[int, Answer]]) -> None:
        """Answer requests, by number. From any thread."""
        self._open[2].answer(answers)

    def traced(self, spans: Iterable[tuple[int, bytes]]) -> None:
        """See `Source.traced`. Their answers have the header, over gRPC behind the answer."""
        self._open[2].traced(spans)

    def close(self) -> None:
        """Answer the requests that are left, and stop listening. Idempotent."""
        if self._opened is None:
            return
        listener, model, inbox = self._opened
        inbox.close(STOPPING)
        listener.remove(model)

    def metrics(self) -> Sequence[Measure]:
        """See `Source.metrics`."""
        inbox = None if self._opened is None else self._opened[2]
        return (
            *(
                Measure(
                    "requests",
                    "Requests that were answered",
                    count,
                    labels={"protocol": protocol, "status": str(status)},
                )
                for (protocol, status), count in sorted(self.counts.answered.items())
            ),
            Measure("cancelled", "Requests whose client has gone before its answer", self.counts.cancelled),
            Measure("late", "Requests that waited too long and were not run", 0 if inbox is None else inbox.late),
            Measure("waiting", "Requests that wait to be run", 0 if inbox is None else inbox.waiting, "gauge"),
            Measure(
                "held_bytes", "Bytes of requests that wait to be run", 0 if inbox is None else inbox.held_bytes, "gauge"
            ),
        )

    @property
    def _open(self) -> tuple[Listener, ServedModel, Inbox]:
        if self._opened is None:
            raise ConnectorError(f"source {self.name} is not open")
        return self._opened

    def _records(self, requests: list[Request]) -> Records:
        values = [request.body for request in requests]
        header = None if self.config.key is None else self.config.key.removeprefix("headers.").encode()
        keys = [b"%d" % request.number if header is None else _header(request, header) for request in requests]
        return Records(
            self.name,
            values,
            keys,
            np.array([request.number for request in requests], np.int64),
            [Span(self._lane, 0, len(requests))],
            [self._served.service],
            [0],
            sum(map(len, values)),
            headers=lambda: [_headers(request) for request in requests],
            timestamps=lambda: np.array([request.at for request in requests], np.int64),
            extras={name: partial(_extra, name, requests) for name in COLUMNS},
            received=requests[0].arrived or None,
        )


def _header(request: Request, name: bytes) -> bytes | None:
    return next((value for key, value in request.headers if key == name), None)


class _Names(dict[bytes, str | None]):
    """The names of headers as text; `None` for those that no record has."""

    def __missing__(self, name: bytes) -> str | None:
        text = name.decode("latin-1")
        known = None if text in SECRETS else text
        if len(self) < MOST_NAMES:
            self[name] = known
        return known


_names: Final = _Names()


def _headers(request: Request) -> list[Header] | None:
    return [(name, value) for key, value in request.headers if (name := _names[key]) is not None] or None


def _extra(name: str, requests: Sequence[Request]) -> Column:
    return Column.of([getattr(request, name) for request in requests])
