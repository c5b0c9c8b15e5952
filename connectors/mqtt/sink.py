"""`MqttSink`: messages published to a broker, confirmed by its acknowledgements."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np

from connectors.measures import Measure
from connectors.mqtt.protocol.fields import MOST
from connectors.mqtt.protocol.packets import V5
from connectors.mqtt.publishing.block import Block
from connectors.mqtt.publishing.inflight import CAPACITY
from connectors.mqtt.publishing.publisher import Publisher
from connectors.mqtt.sinkconfig import MqttSinkConfig
from connectors.records import Ints, Messages
from connectors.sink import Lost, Refused, Sink
from pipelines.errors import ConnectorError

OPEN_WAIT = 5.0
"""Seconds to wait for the broker's answer, so that a refused login is reported when the service starts."""
PIECE = 512
"""The most messages that are handed to the thread of the connection at once."""


class MqttSink(Sink):
    """Publishes messages in their order. The connection has a thread of its own, so that it is kept alive during long
    batches.

    With QoS 1 a message is confirmed by its PUBACK, with QoS 2 by its PUBCOMP, with QoS 0 by the answer to a ping that
    follows it. When the connection is lost, unconfirmed messages are published again: with DUP and the same packet ids
    if the broker has kept the session, else as new messages. So no message is lost and some may come twice, with QoS 0
    too. A message for which the broker has no room (quota exceeded) is tried again; one that it refuses is lost for
    good and named by the barrier. Over a connection of MQTT 5 headers become user properties and the key correlation
    data; MQTT 3.1.1 has no place for them, except in dead letters, which are JSON documents there.

    Unconfirmed messages are held in at most `buffer` bytes and 131,072 messages.
    """

    def __init__(self, config: MqttSinkConfig) -> None:
        self.name = config.label
        self._config = config
        self._style = config.style()
        self._publisher: Publisher | None = None
        self._lost: dict[int, ConnectorError] = {}
        self.headers_left_out = 0
        """The number of headers that were no text, and so could not be user properties."""

    def metrics(self) -> Sequence[Measure]:
        """See `Sink.metrics`."""
        publisher = self._publisher

        lost, again, unheard, messages, held = (
            (0, 0, 0, 0, 0)
            if publisher is None
            else (
                publisher.connections_lost,
                publisher.again,
                publisher.unheard,
                publisher.unconfirmed.messages,
                publisher.unconfirmed.bytes,
            )
        )
        return (
            Measure("connections_lost", "Connections to the broker that were lost.", lost),
            Measure("messages_again", "Messages that were published more than once.", again),
            Measure("messages_unheard", "Messages without a subscriber, by the broker's answer.", unheard),
            Measure("headers_left_out", "Headers that are no text.", self.headers_left_out),
            Measure("unconfirmed_messages", "Messages that are not confirmed.", messages, "gauge"),
            Measure("unconfirmed_bytes", "Bytes of messages that are not confirmed.", held, "gauge"),
        )

    def open(self) -> None:
        """Connect. Waits up to 5 s for the broker's answer; an absent broker is no error.

        Raises `ConnectorError` for a login or client id that is refused, and a broker that lacks a feature that is
        needed.
        """
        publisher = Publisher(self.name, self._config.settings(), self._config.client, self._style, self._config.window)
        publisher.start()
        self._publisher = publisher
        deadline = time.monotonic() + OPEN_WAIT
        while not publisher.tried and time.monotonic() < deadline:
            time.sleep(0.01)
        if publisher.failure is not None:
            self.close()
            raise publisher.failure

    def send(self, messages: Messages, deadline: float) -> Refused:
        """See `Sink.send`. Messages with an invalid topic, and those that are too large, are refused alone.

        Raises `ConnectorError` when the sink is broken for good: another client took over its session, for example.
        """
        publisher = self._working()
        refused: dict[int, ConnectorError] = {}
        for start in range(0, len(messages), PIECE):
            index = np.arange(start, min(start + PIECE, len(messages)))
            piece = messages if len(index) == len(messages) else messages.take(index)
            block = Block(piece, self._style)
            sizes = block.sizes
            wrong = self._wrong(block, sizes, publisher)
            refused |= {start + at: error for at, error in wrong.items()}
            if wrong:
                good = np.array([at for at in range(len(index)) if at not in wrong], np.int64)
                if not len(good):
                    continue
                block, sizes, index = Block(piece.take(good), self._style), sizes[good], index[good]
            self.headers_left_out += block.left_out
            given = self._give(publisher, messages, block, index, deadline)
            if given < len(index):
                # No message overtakes one that finds no room.
                rest = [*index[given:].tolist(), *range(int(index[-1]) + 1, len(messages))]
                full = self._full(publisher)
                refused |= {at: full for at in rest if at not in refused}
                break
        return refused

    def barrier(self, deadline: float) -> Lost:
        """See `Sink.barrier`. Raises as `send` does."""
        publisher = self._working()
        with publisher.unconfirmed.changed:
            while publisher.unconfirmed.messages and publisher.failure is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    why = publisher.down
                    raise ConnectorError(
                        f"sink {self.name}: {publisher.unconfirmed.messages} messages are not confirmed yet"
                        + (f", as the broker cannot be reached: {why}" if why else "; the broker is slow"),
                        retriable=True,
                    )
                publisher.unconfirmed.changed.wait(left)
            self._take_lost(publisher)
        self._working()
        lost, self._lost = self._lost, {}
        return lost

    def confirmed(self) -> list[Ints]:
        """See `Sink.confirmed`."""
        publisher = self._publisher
        confirmed: list[Ints] = []
        while publisher is not None and publisher.unconfirmed.confirmed:
            confirmed.append(publisher.unconfirmed.confirmed.popleft())
        return confirmed

    def behind(self) -> float:
        """See `Sink.behind`."""
        publisher = self._publisher
        if publisher is None:
            return 0.0
        return math.inf if publisher.unconfirmed.lost or self._lost else publisher.unconfirmed.waited

    def down(self) -> str | None:
        """See `Sink.down`."""
        return None if self._publisher is None else self._publisher.down

    def close(self) -> None:
        """See `Sink.close`. Unconfirmed messages are dropped."""
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None

    def _working(self) -> Publisher:
        if self._publisher is None:
            raise ConnectorError(f"{self.name} is not open")
        if self._publisher.failure is not None:
            raise self._publisher.failure
        return self._publisher

    def _take_lost(self, publisher: Publisher) -> None:
        self._lost |= publisher.unconfirmed.lost
        publisher.unconfirmed.lost = {}

    def _wrong(self, block: Block, sizes: Ints, publisher: Publisher) -> dict[int, ConnectorError]:
        granted = publisher.granted
        # Until a broker has answered, it may be one that takes headers.
        whys = block.wrong() if granted is not None and granted.version != V5 else block.shunned() | block.wrong()
        wrong = {at: ConnectorError(f"sink {self.name}: {why}") for at, why in whys.items()}
        most = min(MOST, self._config.buffer if granted is None else min(granted.max_packet, self._config.buffer))
        if int(sizes.max()) > most:
            for at in np.flatnonzero(sizes > most).tolist():
                wrong.setdefault(at, self._too_large(int(sizes[at]), publisher))
        return wrong

    def _too_large(self, size: int, publisher: Publisher) -> ConnectorError:
        granted = publisher.granted
        if granted is not None and size > granted.max_packet:
            return publisher.too_large(size, granted.max_packet)
        return ConnectorError(
            f"sink {self.name}: a message of {size} bytes is more than buffer ({self._config.buffer} bytes); raise it"
        )

    def _give(self, publisher: Publisher, messages: Messages, block: Block, index: Ints, deadline: float) -> int:
        """Hand the messages at `index`, which are those of `block`, to the publisher as it has room; returns how many
        by the deadline."""
        given = 0
        while given < len(index):
            fits = self._wait_for_room(publisher, block.sizes, deadline)
            if not fits:
                break
            part = block if fits == len(block) else Block(messages.take(index[given : given + fits]), self._style)
            publisher.give(part, int(part.sizes.sum()))
            given += fits
            if given < len(index):
                block = Block(messages.take(index[given:]), self._style)
        return given

    def _wait_for_room(self, publisher: Publisher, sizes: Ints, deadline: float) -> int:
        """Wait until there is room for at least one of these messages. Returns for how many there is room, 0 at the
        deadline."""
        ends = np.cumsum(sizes)
        with publisher.unconfirmed.changed:
            while publisher.failure is None:
                fits = int(np.searchsorted(ends, self._config.buffer - publisher.unconfirmed.bytes, side="right"))
                fits = min(fits, CAPACITY - publisher.unconfirmed.messages)
                left = deadline - time.monotonic()
                if fits > 0:
                    return fits
                if left <= 0:
                    return 0
                publisher.unconfirmed.changed.wait(left)
        self._working()
        return 0

    def _full(self, publisher: Publisher) -> ConnectorError:
        why = publisher.down
        return ConnectorError(
            f"sink {self.name}: its buffer is full, as the broker is {f'away: {why}' if why else 'slow'}",
            retriable=True,
        )
