"""`MqttEndpointSource`: messages that MQTT clients publish to us directly."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from connectors.coded import Coded
from connectors.measures import Measure
from connectors.mqtt.endpoint.config import MqttEndpointSourceConfig
from connectors.mqtt.endpoint.endpoint import Endpoint, Listening
from connectors.mqtt.endpoint.handler import EndpointCounts, EndpointHandler
from connectors.mqtt.endpoint.inbox import Arrival, Inbox, Line
from connectors.mqtt.protocol.properties import Properties
from connectors.mqtt.protocol.topics import TopicPatterns, matches
from connectors.mqtt.server import Limits, Server
from connectors.records import Header, Lane, Records, Span
from connectors.source import Event, LaneBegan, LaneEnded, Replays, Settle, Source, SourceDown
from connectors.units import host_and_port
from pipelines.data.columns import MISSING, Column
from pipelines.errors import ConnectorError

SILENCE: Final = 0.005
"""Seconds without a message after which clients with unacknowledged ones are assumed to wait for an acknowledgement.

How many messages a client of MQTT 3.1.1 sends ahead is not known, and clients of MQTT 5 may send fewer than they are
allowed.
"""
_OVERHEAD: Final = 128 * 1024
_FLUSH: Final = 5.0
_OF_PROPERTIES: Final = {
    "content_type": "content_type",
    "response_topic": "response_topic",
    "correlation": "correlation_data",
}


class MqttEndpointSource(Source):
    """Messages that clients publish to a port of this process. A lane is a client's connection, positions are arrival
    numbers.

    A record's key is the client id. Messages of QoS 1 and 2 are acknowledged to the client (PUBACK, PUBREC) when their
    positions are, in the order of arrival. When a client disconnects its lane ends, and its polled records are
    finished; it sends unacknowledged messages again when it reconnects, in a new lane. `rewind` needs no client:
    records are kept until they are acknowledged.

    A thread of the endpoint reads, writes and keeps the connections alive, independent of `poll`.
    """

    replays = Replays.SESSION

    def __init__(self, config: MqttEndpointSourceConfig) -> None:
        self.name = config.label
        self.config = config
        self._endpoint = Endpoint.of(config.endpoint)
        self._patterns = TopicPatterns(config.topics)
        self._known_topics: dict[str, bool] = {}
        self._opened: tuple[Inbox, EndpointHandler, Server] | None = None
        self._lines: dict[Lane, Line] = {}
        self._lanes: dict[Line, Lane] = {}
        self._ending: list[Line] = []
        self._epoch = -1
        self._unacknowledged = 0
        self._acknowledged_at = 0.0
        self._events: list[Event] = []

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that it listens on."""
        _, _, server = self._open
        return server.host, server.port

    @property
    def held(self) -> int:
        """Bytes of messages that were received and not polled."""
        return 0 if self._opened is None else self._opened[0].byte_count

    @property
    def counts(self) -> EndpointCounts:
        """The counters since it was opened."""
        return EndpointCounts() if self._opened is None else self._opened[1].counts

    def open(self, settle: Settle | None = None, *, commits: bool = True) -> None:
        """Listen. Raises `ConnectorError` where the port is taken or a certificate cannot be used,
        `MissingPackageError` where one has to be made and cryptography is not installed."""
        config = self.config
        host, port = host_and_port(config.listen)
        users = None if config.users is None else {name: word.get_secret_value() for name, word in config.users.items()}
        listening = Listening(
            host,
            port,
            None if config.tls is None else config.tls.context(host),
            Limits(
                connections=config.connections,
                per_address=config.per_address,
                max_packet=config.max_message + _OVERHEAD,
                unfinished=max(config.max_held, config.max_message + _OVERHEAD),
            ),
            config.max_held,
            config.window,
            users,
            self._listens_to,
        )
        self._opened = self._endpoint.listen(listening)
        where = "{}:{}".format(*self.address)
        self._events.append(SourceDown(self.name, False, f"listening on {'mqtts' if config.tls else 'mqtt'}://{where}"))

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        """See `Source.poll`. The clients take turns."""
        inbox, handler, server = self._open
        self._end_lanes()
        deadline = time.monotonic() + timeout
        while (rest := self._rest(inbox, deadline)) > 0 and not inbox.wait(max_records, max_bytes, rest):
            pass
        parts: list[tuple[Line, list[Arrival]]] = []
        count, size = 0, 0
        while count < max_records and (size < max_bytes or not count):
            runs = inbox.take(max_records - count, max_bytes - size)
            if not runs:
                break
            for line, arrivals in runs:
                if arrivals:
                    parts.append((line, arrivals))
                    count += len(arrivals)
                    size += sum(len(arrival.payload) for arrival in arrivals)
                else:
                    self._ending.append(line)
        if count and handler.paused:
            server.call(handler.go_on)
        return self._records(parts) if parts else Records.empty(self.name)

    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None:
        """See `Source.acknowledge`. With `wait` it returns when the acknowledgements are written; MQTT has no answer to
        them."""
        _, handler, server = self._open
        done: list[tuple[Line, list[Arrival]]] = []
        for lane, position in positions.items():
            line = self._lines.get(lane)
            if line is None:
                continue
            arrivals: list[Arrival] = []
            while line.in_hand and line.in_hand[0].position < position:
                arrival = line.in_hand.popleft()
                if arrival.qos:
                    arrivals.append(arrival)
            if arrivals:
                self._unacknowledged -= len(arrivals)
                done.append((line, arrivals))
        if done:
            self._acknowledged_at = time.monotonic()
            server.call(lambda: handler.acknowledge(done))
        if wait:
            lines = list(self._lanes)
            deadline = time.monotonic() + _FLUSH
            while server.ask(lambda: handler.unsent(lines)) and time.monotonic() < deadline:
                time.sleep(0.01)

    def rewind(self, lanes: Iterable[Lane]) -> None:
        """See `Source.rewind`."""
        inbox, _, _ = self._open
        for lane in list(lanes):
            line = self._lines.pop(lane, None)
            if line is None:
                continue
            again = list(line.in_hand)
            line.in_hand.clear()
            self._unacknowledged -= sum(1 for arrival in again if arrival.qos)
            self._events.append(LaneEnded(lane))
            self._begin_lane(line)
            inbox.put_back(line, again)

    def events(self) -> list[Event]:
        """See `Source.events`."""
        if not self._events:
            return []
        events, self._events = self._events, []
        return events

    def starved(self) -> bool:
        """See `Source.starved`: clients wait for acknowledgements, and have been silent for some milliseconds."""
        inbox, _, _ = self._open
        if inbox.count or not self._unacknowledged:
            return False
        return self._stands(inbox) or time.monotonic() - self._heard_at(inbox) >= SILENCE

    def wake(self) -> None:
        """See `Source.wake`."""
        if self._opened is not None:
            self._opened[0].wake()

    def close(self) -> None:
        """Disconnect all clients and stop listening."""
        if self._opened is not None:
            self._endpoint.close()

    @property
    def _open(self) -> tuple[Inbox, EndpointHandler, Server]:
        if self._opened is None:
            raise ConnectorError(f"source {self.name} is not open")
        return self._opened

    def metrics(self) -> Sequence[Measure]:
        """See `Source.metrics`."""
        counts = self.counts
        return (
            Measure("clients", "Clients whose login was accepted", counts.clients),
            Measure("connected_clients", "Clients that are connected", counts.connected, "gauge"),
            Measure("received", "Messages that were accepted", counts.received),
            Measure("refused", "Messages on topics that do not match the source's", counts.refused),
            Measure("dropped", "Messages of QoS 0 for which there was no room", counts.dropped),
            Measure("unanswered", "Answers whose client was gone, or refused them", counts.unanswered),
            Measure("held_bytes", "Bytes of messages that wait to be run", self.held, "gauge"),
        )

    def _rest(self, inbox: Inbox, deadline: float) -> float:
        """The timeout of the wait for more messages, in seconds."""
        if inbox.count and self._stands(inbox):
            return 0.0
        if inbox.count and self._unacknowledged:
            deadline = min(deadline, self._heard_at(inbox) + SILENCE)
        return deadline - time.monotonic()

    def _stands(self, inbox: Inbox) -> bool:
        """Whether all messages that are not acknowledged are of clients that may send no more until some are."""
        return inbox.standing == self._unacknowledged + inbox.count

    def _heard_at(self, inbox: Inbox) -> float:
        return max(inbox.heard_at, self._acknowledged_at)

    def _listens_to(self, topic: str) -> bool:
        known = self._known_topics.get(topic)
        if known is None:
            if len(self._known_topics) >= 65_536:
                self._known_topics.clear()
            known = any(matches(pattern, topic) for pattern in self._patterns.filters)
            self._known_topics[topic] = known
        return known

    def _end_lanes(self) -> None:
        for line in self._ending:
            lane = self._lanes.pop(line, None)
            if lane is not None:
                self._unacknowledged -= sum(1 for arrival in line.in_hand if arrival.qos)
                del self._lines[lane]
                self._events.append(LaneEnded(lane, finish=True))
        self._ending.clear()

    def _begin_lane(self, line: Line) -> Lane:
        self._epoch += 1
        # A client that reconnects may send before the end of its last connection was noticed.
        lane = Lane(self.name, f"{line.client_id}/{line.number}", self._epoch)
        self._lines[lane], self._lanes[line] = line, lane
        self._events.append(LaneBegan(lane, ", ".join(self.config.topics), 0))
        return lane

    def _records(self, parts: list[tuple[Line, list[Arrival]]]) -> Records:
        spans: list[Span] = []
        keys: list[bytes | None] = []
        users: list[Any] = []
        all_of_them: list[Arrival] = []
        for line, arrivals in parts:
            lane = self._lanes.get(line) or self._begin_lane(line)
            line.in_hand.extend(arrivals)
            self._unacknowledged += sum(1 for arrival in arrivals if arrival.qos)
            spans.append(Span(lane, len(all_of_them), len(all_of_them) + len(arrivals)))
            keys += [line.client_id.encode()] * len(arrivals)
            users += [line.user] * len(arrivals)
            all_of_them += arrivals
        values: list[bytes | None] = [arrival.payload for arrival in all_of_them]
        if self.config.tombstones != "forward":
            values = [value or None for value in values]
        return Records(
            self.name,
            values,
            keys,
            np.array([arrival.position for arrival in all_of_them], np.int64),
            spans,
            Coded.of([arrival.topic for arrival in all_of_them]),
            [0] * len(spans),
            sum(len(value or b"") for value in (*values, *keys)),
            headers=lambda: _headers(all_of_them),
            timestamps=lambda: np.array([arrival.at for arrival in all_of_them], np.int64),
            extras={
                name: partial(_column, users) if name == "user" else partial(self._extra, name, all_of_them)
                for name in self.config.record_names
            },
        )

    def _extra(self, name: str, arrivals: Sequence[Arrival]) -> Column:
        values: list[Any]
        if name.startswith("levels."):
            values = self._patterns.column(name.removeprefix("levels."), [arrival.topic for arrival in arrivals])
        elif name in _OF_PROPERTIES:
            values = [_of(arrival.properties, _OF_PROPERTIES[name]) for arrival in arrivals]
        elif name == "qos":
            values = [arrival.qos for arrival in arrivals]
        else:
            values = [arrival.retain if name == "retained" else arrival.dup for arrival in arrivals]
        return _column(values)


def _column(values: list[Any]) -> Column:
    return Column.of([MISSING if value is None else value for value in values])


def _of(properties: Properties, name: str) -> Any:
    return getattr(properties, name)


def _headers(arrivals: Sequence[Arrival]) -> list[list[Header] | None] | None:
    headers: list[list[Header]] = [
        [(name, value.encode()) for name, value in arrival.properties.user_properties] for arrival in arrivals
    ]
    return [row or None for row in headers] if any(headers) else None
