"""`MqttSource`: messages of MQTT topics, acknowledged when they are done."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from connectors.measures import Measure
from connectors.mqtt.arrivals import Arrivals
from connectors.mqtt.canary import Canary
from connectors.mqtt.columns import Columns
from connectors.mqtt.gathering import Gathering
from connectors.mqtt.onlyonce import OnlyOnce
from connectors.mqtt.pending import Part, Pending
from connectors.mqtt.protocol.bulk import encode_acks
from connectors.mqtt.protocol.packets import Packet, PacketType, Pubcomp, Publish, Pubrel
from connectors.mqtt.protocol.scan import Scanned
from connectors.mqtt.protocol.topics import TopicPatterns, why_no_name
from connectors.mqtt.session.choose import session
from connectors.mqtt.session.session import Session
from connectors.mqtt.session.settings import Granted, Grants
from connectors.mqtt.starvation import Starvation
from connectors.mqtt.topicfilter import TopicFilter
from connectors.mqtt.window import Done, Mask, Row, Window
from connectors.records import Lane, Records
from connectors.source import Event, LaneBegan, LaneEnded, Replays, Settle, Source, SourceDown
from pipelines.data.spans import Ints
from pipelines.errors import ConnectorError

if TYPE_CHECKING:
    from connectors.mqtt.config import MqttSourceConfig

_log = logging.getLogger(__name__)

_OPEN_WAIT = 5.0
"""Seconds that `open` waits for the broker, to raise permanent errors at once."""
_ACKNOWLEDGE_WAIT = 10.0
"""Seconds within which the broker has to confirm that it has the acknowledgements."""
_MOST_HELD = 1 << 20
"""The most bytes that are received ahead of polls, to reach the broker's answer that follows the messages."""
_PARTITION = "0"
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
    """How often messages may have been missed: connections that began without the session of the last one."""
    gone: int = 0
    """Unfinished messages of QoS 0 when the source was rewound: they do not come again."""
    too_large: int = 0
    """Messages larger than `max_message`, which were acknowledged and discarded."""


class MqttSource(Source):
    """Messages of MQTT topics. Positions are arrival numbers; a lane is a session on the broker.

    `poll` reads the socket, `acknowledge` writes it: the connection belongs to the thread that calls them, which also
    keeps it alive, by `poll` and `standing_still`. Messages are read only as they are polled, so that memory stays
    bounded even if the broker ignores the window, and at most `window` unacknowledged messages are polled.

    At QoS 1 and 2 a message is acknowledged to the broker (PUBACK, PUBREC) when its position is, in the order of
    arrival, and only on the connection on which it came. When the connection is cut and the broker has kept the
    session, it sends unacknowledged messages again: those whose records are not finished yet, by packet id, topic and
    payload, are not delivered again, but acknowledged when they are done. If the broker has lost the session, the lane
    ends, polled records are finished, and a new lane begins. At QoS 0 no message comes again.
    """

    def __init__(self, config: MqttSourceConfig) -> None:
        self.name = config.label
        self.replays = Replays.SESSION if config.qos else Replays.NONE
        self.counts = Counts()
        self._config = config
        patterns = TopicPatterns(config.topics)
        shard = None if config.shard is None else (config.shard.index, config.shard.count, config.shard.level)
        topic = config.canary_topic
        self._canary = None if config.canary is None or topic is None else Canary(topic, config.canary.every)
        self._filter = TopicFilter(patterns, shard, topic)
        self._columns = Columns(self.name, patterns, config.key, empty_is_none=config.tombstones != "forward")
        self._patterns = patterns
        self._arrivals = Arrivals(config.max_packet, self._arrived, self._passed_by)
        self._pending = Pending()
        self._window = Window()
        self._only_once = OnlyOnce()
        self._starvation = Starvation()
        self._gathering = Gathering()
        self._unfinished: dict[int, Row] = {}
        self._released: set[int] = set()
        self._lane: Lane | None = None
        self._epoch = -1
        self._next_position = 0
        self._mark = 0
        self._known = 0
        self._events: list[Event] = []
        self._told_down: str | None = None
        self._told_expiry = False
        self._subscribed = False
        self._awaiting_answer = False
        self._left_out = False
        self._connect_wait = _OPEN_WAIT
        self._warned_of: str | None = None
        self._session: Session | None = None

    def open(self, settle: Settle | None = None, *, commits: bool = True) -> None:
        """Connect and subscribe. Waits up to 5 s for the broker; an absent one is an event.

        Raises `ConnectorError` for a login or topic filter that is refused, and QoS 0 where QoS 1 was asked for.
        """
        self._session = session(self._config.client, self._config.settings(), self, self._arrivals)
        deadline = time.monotonic() + self._connect_wait
        try:
            # Bounded, as the broker may send messages before it grants the subscriptions.
            while not self._subscribed and self.held_bytes < _MOST_HELD and time.monotonic() < deadline:
                self._session.turn(min(0.1, deadline - time.monotonic()))
                if self._session.lost:
                    break
        except ConnectorError:
            self.close()
            raise
        self._look_at_the_connection()

    def poll(self, max_records: int, max_bytes: int, timeout: float) -> Records:
        """See `Source.poll`. The rows of one poll are of one lane; columns besides the payloads are read on first use.

        Raises `ConnectorError` when another client takes over the session, and for QoS 0 where QoS 1 was asked for.
        """
        max_records = min(max_records, self._room)
        self._look_at_the_canary(reading=max_records > 0)
        if max_records:
            self._fill(max_records, max_bytes, time.monotonic() + timeout)
        else:
            self._open_session.turn(timeout, read=False)
            self._open_session.woken()
        self._look_at_the_connection()
        if self._lane is None or not self._pending.count or not max_records:
            return Records.empty(self.name)
        lane = self._lane
        return self._columns.records(self._pending.take(max_records, max_bytes), lane)

    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None:
        """See `Source.acknowledge`. With `wait` raises `ConnectorError` if the broker does not confirm it in 10 s;
        messages that come again meanwhile, as the connection was cut, are acknowledged again and not delivered.
        """
        if self._lane is not None and self._lane in positions:
            self._mark = max(self._mark, positions[self._lane])
            self._acknowledge_done(keep=wait)
            self._only_once.done(self._mark)
        if wait and self.replays is Replays.SESSION and self._is_unsure:
            self._wait_until_known()

    def rewind(self, lanes: Iterable[Lane]) -> None:
        """See `Source.rewind`: connects anew, so that the broker delivers unacknowledged messages again.

        Messages of QoS 0 do not come again: they are counted (`gone`) and logged.
        """
        if self._lane is None or self._lane not in set(lanes):
            return
        if gone := self._only_once.clear(self._mark):
            self.counts.gone += gone
            _log.warning(
                "source %s: %d messages that were published at QoS 0 do not come again: their results are lost",
                self.name,
                gone,
            )
        self._begin_lane(finish=False)
        self._pending.clear()
        self._window.clear()
        self._unfinished.clear()
        self._open_session.restart("to have messages delivered again")
        self._look_at_the_connection()

    def events(self) -> list[Event]:
        """See `Source.events`."""
        if not self._events:
            return []
        events, self._events = self._events, []
        return events

    def standing_still(self, still: bool) -> None:
        """Keep the connection alive without reading, so that messages wait at the broker."""
        if still and self._session is not None:
            self._session.turn(0.0, read=False)
            self._look_at_the_canary(reading=False)
            self._look_at_the_connection()

    def starved(self) -> bool:
        """See `Source.starved`."""
        return not self._room or (not self._pending.count and self._starvation.stands(self._window.count))

    def publish(self, topic: str, payload: bytes) -> bool:
        """See `Source.publish`: at QoS 0."""
        if not self.connected or why_no_name(topic):
            return False
        self._open_session.send(Publish(topic, payload))
        return True

    def metrics(self) -> Sequence[Measure]:
        """See `Source.metrics`."""
        counts, link, canary = self.counts, self._session, self._canary
        reconnects = 0 if link is None else max(0, link.connection - 1)
        return (
            Measure("connected", "Whether the broker can be reached", link is not None and link.connected, "gauge"),
            Measure("reconnects", "Connections that were made after the first", reconnects),
            Measure("sessions_lost", "Sessions that the broker had forgotten", counts.sessions_lost),
            Measure("gaps", "Connections that began without the session of the last one", counts.gaps),
            Measure("gone", "Messages of QoS 0 that were not finished and were lost by a rewind", counts.gone),
            Measure("received", "Messages that came", counts.received),
            Measure("redelivered", "Messages that came with the DUP flag", counts.duplicates),
            Measure("matched", "Messages that came again before their records were finished", counts.matched),
            Measure("passed_over", "Messages that were acknowledged and not delivered", counts.passed),
            Measure("too_large", "Messages larger than max_message, which were passed over", counts.too_large),
            Measure("canaries", "Messages that the source published to itself", 0 if canary is None else canary.sent),
            Measure("canaries_missed", "Those that did not come back", 0 if canary is None else canary.missed),
            Measure("canary_seconds", "How long the last took", 0.0 if canary is None else canary.seconds, "gauge"),
            Measure("acknowledgements", "Acknowledgements that were sent", counts.acknowledged),
            Measure("unacknowledged", "Messages that the broker waits to be acknowledged", self._window.count, "gauge"),
            Measure("window", "Messages that the broker may send ahead", self._config.window, "gauge"),
        )

    def wake(self) -> None:
        """See `Source.wake`."""
        if self._session is not None:
            self._session.wake()

    def close(self) -> None:
        """Disconnect. The broker keeps the session for `expiry`."""
        if self._session is not None:
            self._session.close()

    @property
    def connected(self) -> bool:
        """Whether the broker can be reached and has granted the subscriptions."""
        return self._session is not None and self._session.connected and self._subscribed

    @property
    def down(self) -> str | None:
        """Why the broker cannot be reached, or is believed to send nothing (canary); `None` if all is well."""
        if self._session is None:
            return None
        return self._session.down or (None if self._canary is None else self._canary.down)

    @property
    def held_bytes(self) -> int:
        """Bytes that were received and not polled."""
        return self._pending.byte_count + self._arrivals.held

    def begun(self, granted: Granted) -> None:
        """A connection was accepted: the session goes on, or another one has begun."""
        self._starvation = Starvation()
        self._look_at_the_connection()
        if granted.expiry < self._config.session_expiry and not self._told_expiry:
            self._told_expiry = True
            _log.warning(
                "source %s: the broker keeps the session for %d s only, not %d s: messages published during a longer "
                "outage are lost",
                self.name,
                granted.expiry,
                self._config.session_expiry,
            )
        if self._lane is not None and not (granted.session_present and self._config.qos):
            self.counts.gaps += 1
        if granted.session_present:
            if self._lane is None:
                self._begin_lane(finish=False)
            return
        self._released.clear()
        self._unfinished.clear()
        if self._lane is not None and self._config.session_expiry:
            self.counts.sessions_lost += 1
            _log.warning("source %s: the broker has lost the session; messages that it held for it are gone", self.name)
        self._begin_lane(finish=True)

    def subscribed(self, grants: Grants) -> None:
        """The broker has granted the subscriptions."""
        if self._canary is not None and not self._subscribed:
            self._canary.begun()
        self._subscribed = True

    def received(self, packet: Packet) -> None:
        """PUBREL: the broker releases a message of QoS 2."""
        if isinstance(packet, Pubrel):
            self._released.discard(packet.packet_id)
            self._open_session.send(Pubcomp(packet.packet_id))

    def ended(self, reason: str) -> None:
        """The connection is gone: polled records may come again."""
        self._unfinished = {**self._unfinished, **self._window.rows()}
        self._window.clear()
        self._subscribed = False
        if self._canary is not None:
            self._canary.ended()
        self._tell(reason)

    @property
    def _room(self) -> int:
        """How many more messages may be polled before some are acknowledged.

        Enforced here too, as not every broker keeps to the Receive Maximum (mosquitto exceeds it, and MQTT 3.1.1 has
        none): so many messages at most come again when this process is killed.
        """
        polled = self._window.count - self._pending.count
        return max(0, self._config.window - max(polled, 0))

    def _fill(self, max_records: int, max_bytes: int, deadline: float) -> None:
        """Receive until there are enough messages, the deadline has passed, or the source is starved."""
        connection, pending, gathering = self._open_session, self._pending, self._gathering
        wait = True
        while pending.count < max_records and pending.byte_count < max_bytes:
            rest = deadline - time.monotonic()
            if pending.count:
                rest = min(rest, self._starvation.rest(self._window.count))
            came = connection.turn(max(rest, 0.0) if wait else 0.0)
            if wait and not came and (rest <= 0 or connection.woken()):
                return
            wait = not gathering.worth_it
            if not wait and (connection.drained or not came):
                window = min(self._config.window, self._starvation.window)
                pause = min(gathering.pause(min(max_records - pending.count, window - self._window.count)), rest)
                wait = pause <= 0
                if not wait:
                    connection.idle(pause)
                    if connection.woken():
                        return

    def _arrived(self, block: Scanned) -> None:
        """Messages were received: give them positions, and leave out those that are not to be delivered."""
        if self._awaiting_answer and self.held_bytes > _MOST_HELD:
            self._left_out = True
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
        follow = not self._unfinished
        if self._released or self._unfinished:
            wanted = np.ones(count, np.bool_) if wanted is None else wanted
            passed = np.zeros(count, np.bool_) if passed is None else passed
            self._match(block, positions, wanted, passed)
        before = self._window.count
        self._window.add(block, positions, passed, follow=follow, alike=alike)
        if self._window.count - before < count:
            once = block.qos == 0
            self._only_once.add(positions[once if wanted is None else once & wanted])
        self._starvation.heard()
        self._gathering.came(count)
        rows = None if wanted is None or wanted.all() else np.flatnonzero(wanted)
        if rows is None or len(rows):
            self._pending.add(Part.of(block, rows, positions, time.time_ns() // 1_000_000))
        if passed is not None:
            self.counts.passed += int(passed.sum())
            # Messages that are passed over, or were done before they came again.
            self._acknowledge_done()

    def _passed_by(self, size: int, block: Scanned) -> None:
        """A message was too large to be kept: it is acknowledged when those before it are."""
        position = self._next_position
        self._next_position += 1
        self.counts.received += 1
        self.counts.passed += 1
        self._note_too_large(1, size)
        self._unfinished.pop(int(block.packet_ids[0]), None)
        self._window.add(block, np.array([position], np.int64), np.ones(1, np.bool_), follow=False)
        self._starvation.heard()
        self._acknowledge_done()

    def _match(self, block: Scanned, positions: Ints, wanted: Mask, passed: Mask) -> None:
        """Find the messages whose records were polled before the connection was cut: they keep their positions, and are
        not delivered again."""
        for row in np.flatnonzero(block.qos).tolist():
            packet_id = int(block.packet_ids[row])
            if packet_id in self._released:
                # Its PUBREC was lost: the message is done.
                wanted[row], passed[row] = False, True
                continue
            before = self._unfinished.pop(packet_id, None)
            if before is not None and before.same_as(block, row):
                positions[row] = before.position
                wanted[row] = passed[row] = False
                self.counts.matched += 1

    def _acknowledge_done(self, *, keep: bool = False) -> None:
        done = self._window.take(self._mark, keep=keep or self._awaiting_answer)
        if not len(done.qos_1) and not len(done.qos_2):
            return
        self._send(done)
        self._starvation.acknowledged(self._open_session.rtt)

    def _send(self, done: Done) -> None:
        connection = self._open_session
        if len(done.qos_1):
            connection.write(encode_acks(PacketType.PUBACK, done.qos_1))
        if len(done.qos_2):
            self._released.update(done.qos_2.tolist())
            connection.write(encode_acks(PacketType.PUBREC, done.qos_2))
        self.counts.acknowledged += len(done.qos_1) + len(done.qos_2)

    @property
    def _is_unsure(self) -> bool:
        """Whether the broker may not have the acknowledgements of all finished records."""
        return self.counts.acknowledged > self._known or any(
            row.position < self._mark for row in self._unfinished.values()
        )

    def _wait_until_known(self) -> None:
        """Return when the broker has the acknowledgements of all finished records.

        Its answer follows messages: those for which there is no room are dropped, and delivered again after a
        reconnect.
        """
        self._awaiting_answer, self._left_out = True, False
        try:
            self._wait_for_answer()
        finally:
            self._awaiting_answer = False
        self._window.confirmed()
        self._known = self.counts.acknowledged
        # Records below the mark are dropped here: if the broker missed their acknowledgements, they would have come
        # before its answer.
        self._unfinished = {number: row for number, row in self._unfinished.items() if row.position >= self._mark}
        if self._left_out:
            self._open_session.restart("more messages came than there was room for")

    def _wait_for_answer(self) -> None:
        connection = self._open_session
        deadline = time.monotonic() + _ACKNOWLEDGE_WAIT
        asked: tuple[int, int, int] | None = None
        while True:
            if connection.connected and asked is not None and asked[:2] == (connection.connection, self._sent()):
                if connection.answered(asked[2]):
                    return
            elif connection.connected:
                # Sent again after a reconnect, and after acknowledgements of messages that came again.
                asked = connection.connection, self._sent(), connection.ping()
            if time.monotonic() >= deadline:
                raise ConnectorError(
                    f"source {self.name}: the broker does not answer, so the last acknowledgements may be lost; their "
                    "messages will be delivered again",
                    retriable=True,
                )
            connection.turn(min(0.1, deadline - time.monotonic()))

    def _sent(self) -> int:
        return self.counts.acknowledged

    def _begin_lane(self, *, finish: bool) -> None:
        """The next lane begins, and the last one ends. `finish`: its records are finished, and not delivered again."""
        if self._lane is not None:
            self._events.append(LaneEnded(self._lane, finish))
        self._only_once.clear(self._mark)
        self._epoch += 1
        self._lane = Lane(self.name, _PARTITION, self._epoch)
        self._mark = 0
        self._events.append(LaneBegan(self._lane, ", ".join(self._config.topics), int(_PARTITION)))

    def _hear_canaries(self, canary: Canary, block: Scanned) -> None:
        canary.heard()
        code = self._filter.apart_code
        if code is not None:
            for row in np.flatnonzero(block.topic_codes == code).tolist():
                canary.came(block.payloads[row])

    def _look_at_the_canary(self, *, reading: bool) -> None:
        canary = self._canary
        if canary is None or not self._subscribed:
            return
        if not reading:
            canary.not_reading()
        elif canary.is_missed():
            _log.warning("source %s: %s; it connects and subscribes anew", self.name, canary.down)
            self._open_session.restart("to subscribe anew, as nothing came", subscribe=True)
        elif (message := canary.next()) is not None:
            self._open_session.send(message)
            # The canary has its own subscription: the broker may have lost another one.
            self._open_session.renew()

    def _look_at_the_connection(self) -> None:
        self._tell(self.down)

    def _tell(self, down: str | None) -> None:
        """Report whether the broker can be reached, and why not."""
        if (down is None) != (self._told_down is None):
            reason = down or f"connected to {self._config.url}"
            self._events.append(SourceDown(self.name, down is not None, reason))
        self._told_down = down

    def _note_too_large(self, count: int, size: int) -> None:
        if not self.counts.too_large:
            _log.warning(
                "source %s: a message of %d bytes came, which is more than %d; such messages are acknowledged and "
                "passed over: raise max_message to have them",
                self.name,
                size,
                self._config.max_message,
            )
        self.counts.too_large += count

    def _warn_of(self, topic: str) -> None:
        if self._warned_of is None:
            _log.warning(
                'source %s: a message of "%s" came, which topics does not name: the session has subscriptions of an '
                "earlier configuration; such messages are acknowledged and passed over. A new client_id has none",
                self.name,
                topic,
            )
        self._warned_of = topic

    @property
    def _open_session(self) -> Session:
        if self._session is None:
            raise ConnectorError(f"source {self.name} is not open")
        return self._session
