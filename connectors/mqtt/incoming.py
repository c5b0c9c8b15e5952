"""`Incoming`: the bytes of a source's connection as blocks of messages, of which it decides which are delivered."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from connectors.mqtt.canary import Canary
from connectors.mqtt.config import MqttSourceConfig
from connectors.mqtt.pacing import Gathering, Starvation
from connectors.mqtt.passingby import PassingBy
from connectors.mqtt.pending import Part, Pending
from connectors.mqtt.protocol.packets import V5, Version
from connectors.mqtt.protocol.reading import LARGEST, Role
from connectors.mqtt.protocol.receiving import ReceiveBuffer
from connectors.mqtt.protocol.scan import Scanned, Stopped
from connectors.mqtt.protocol.topics import TopicPatterns
from connectors.mqtt.session.inbound import Inbound, Receive
from connectors.mqtt.topicfilter import TopicFilter
from connectors.mqtt.window import Window
from pipelines.data.spans import Ints

_log = logging.getLogger(__name__)

_BLOCK = 4 << 20
"""Bytes of one block of memory for received bytes: large, as payloads of a batch that lie in one block are not
copied."""
_AT_ONCE = 1 << 20
"""Bytes that are received, and scanned, at once."""
MOST_HELD = 1 << 20
"""The most bytes that are received ahead of polls, to reach the broker's answer that follows the messages."""
_RETAINED = 1
_DUPLICATE = 8


@dataclass(slots=True)
class Counts:
    """Counters of an `MqttSource` since it was made."""

    received: int = 0
    """All messages that were received."""
    duplicates: int = 0
    """Received messages with the DUP flag."""
    matched: int = 0
    """Messages that came again after a reconnect, and were not delivered again as their records were not finished
    yet."""
    passed: int = 0
    """Messages that were acknowledged and not delivered: of other shards, of earlier subscriptions, retained ones,
    canaries."""
    acknowledged: int = 0
    """Acknowledgements that were sent to the broker."""
    sessions_lost: int = 0
    """How often the broker had lost the session, with the messages that it held."""
    gaps: int = 0
    """Connections that began without the previous session, so that messages may have been missed."""
    gone: int = 0
    """Unfinished messages of QoS 0 when the source was rewound: they do not come again."""
    too_large: int = 0
    """Messages larger than `max_message`, which were acknowledged and discarded."""


class Incoming(Inbound):
    """Scans received bytes. Messages get positions; those to be delivered are `pending` until they are polled, and all
    are in the window until they are acknowledged. The session gets the other packets between them, in order.

    No packet of more than `max_packet` bytes is kept. A broker of MQTT 5 is told this limit; one of 3.1.1 cannot be
    told, and its larger messages are discarded while they are received, to be acknowledged in their turn.
    """

    def __init__(
        self,
        config: MqttSourceConfig,
        patterns: TopicPatterns,
        canary: Canary | None,
        window: Window,
        acknowledge: Callable[[], None],
    ) -> None:
        """`acknowledge` is called when messages came that are done already."""
        self.counts = Counts()
        self.pending = Pending()
        self.starvation = Starvation()
        self.gathering = Gathering()
        self.limit: int | None = None
        """The most bytes to hold: beyond these messages are left out, as if they had not come; `None`: no limit."""
        self.left_out = False
        """Whether messages were left out."""
        self._config = config
        shard = None if config.shard is None else (config.shard.index, config.shard.count, config.shard.level)
        self._filter = TopicFilter(patterns, shard, config.canary_topic)
        self._canary = canary
        self._window = window
        self._acknowledge = acknowledge
        self._next_position = 0
        self._buffer: ReceiveBuffer | None = None
        self._passing: PassingBy | None = None
        self._warned_of: str | None = None

    @property
    def held(self) -> int:
        """Bytes that were received and not polled."""
        return self.pending.byte_count + (0 if self._buffer is None else self._buffer.pending)

    def begin(self, version: Version) -> None:
        """See `Inbound.begin`."""
        # If a large message ended the connection, a broker of 3.1.1 would send it again after every reconnect, for
        # ever.
        largest = self._config.max_packet if version == V5 else LARGEST
        self._passing = None
        self._buffer = ReceiveBuffer(Role.CLIENT, version, largest, strict=False, block=_BLOCK)
        self.starvation.begin()

    def room(self) -> memoryview:
        """See `Inbound.room`."""
        assert self._buffer is not None
        return self._buffer.writable()[:_AT_ONCE]

    def filled(self, count: int, receive: Receive) -> None:
        """See `Inbound.filled`."""
        buffer = self._buffer
        assert buffer is not None
        buffer.filled(count)
        while buffer.pending:
            if self._passing is not None and not self._pass_by(self._passing, buffer):
                return
            scanned = buffer.scan()
            if len(scanned):
                self._arrived(scanned)
            if scanned.needed > self._config.max_packet:
                self._passing = PassingBy.of(buffer.unread())
                if self._passing is None:
                    return
            elif scanned.stopped is Stopped.NEED_MORE:
                return
            if scanned.stopped is Stopped.OTHER_PACKET and (packet := buffer.packet()) is not None:
                receive(packet)

    def _pass_by(self, message: PassingBy, buffer: ReceiveBuffer) -> bool:
        """Discard the received bytes of the message; whether its end was reached."""
        buffer.drop(message.passed(buffer.pending))
        if message.left:
            return False
        self._passing = None
        position = self._next_position
        self._next_position += 1
        self.counts.received += 1
        self.counts.passed += 1
        self._note_too_large(1, message.size)
        self._window.add_passed(message.row(), position)
        self.starvation.heard()
        self._acknowledge()
        return True

    def _arrived(self, block: Scanned) -> None:
        """Messages were received: give them positions, and leave out those that are not to be delivered."""
        if self.limit is not None and self.held > self.limit:
            self.left_out = True
            return
        count = len(block)
        first = self._next_position
        self._next_position = first + count
        positions: Ints = np.arange(first, first + count, dtype=np.int64)
        self.counts.received += count
        wanted = self._filter.wanted(block.topics, block.topic_codes)
        if self._filter.stranger is not None:
            self._warn_of(self._filter.stranger)
        if self._canary is not None:
            self._hear_canaries(self._canary, block)
        flags = block.flags
        # In most blocks all flags are equal, and bytes are compared faster than arrays.
        raw = flags.tobytes()
        alike = raw == raw[:1] * count
        seen = raw[0] if alike else int(np.bitwise_or.reduce(flags))
        if seen & _RETAINED and self._config.retained == "skip":
            fresh = flags & _RETAINED == 0
            wanted = fresh if wanted is None else wanted & fresh
        largest = self._config.max_message
        if block.consumed > largest and int(block.payload_lengths.max()) > largest:
            small = block.payload_lengths <= largest
            wanted = small if wanted is None else wanted & small
            self._note_too_large(int((~small).sum()), int(block.payload_lengths.max()))
        passed = None if wanted is None else ~wanted
        if seen & _DUPLICATE:
            self.counts.duplicates += int((flags & _DUPLICATE > 0).sum())
        if self._window.expects:
            wanted = np.ones(count, np.bool_) if wanted is None else wanted
            passed = np.zeros(count, np.bool_) if passed is None else passed
            self.counts.matched += self._window.match(block, positions, wanted, passed)
        self._window.add(block, positions, wanted, passed, alike=alike)
        self.starvation.heard()
        self.gathering.came(count)
        rows = None if wanted is None or wanted.all() else np.flatnonzero(wanted)
        if rows is None or len(rows):
            self.pending.add(Part.of(block, rows, positions, time.time_ns() // 1_000_000))
        if passed is not None:
            self.counts.passed += int(passed.sum())
            # Messages that are passed over, or were done before they came again.
            self._acknowledge()

    def _hear_canaries(self, canary: Canary, block: Scanned) -> None:
        canary.heard()
        code = self._filter.apart_code
        if code is not None:
            for row in np.flatnonzero(block.topic_codes == code).tolist():
                canary.came(block.payloads[row])

    def _note_too_large(self, count: int, size: int) -> None:
        if not self.counts.too_large:
            _log.warning(
                "source %s: a message of %d bytes came, which is more than %d; such messages are acknowledged and "
                "passed over: raise max_message to have them",
                self._config.label,
                size,
                self._config.max_message,
            )
        self.counts.too_large += count

    def _warn_of(self, topic: str) -> None:
        if self._warned_of is None:
            _log.warning(
                'source %s: a message of "%s" came, which topics does not name: the session has subscriptions of an '
                "earlier configuration; such messages are acknowledged and passed over. A new client_id has none",
                self._config.label,
                topic,
            )
        self._warned_of = topic
