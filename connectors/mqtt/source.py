"""`MqttSource`: messages of MQTT topics, acknowledged when they are done."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterable, Mapping, Sequence

from connectors.measures import Measure
from connectors.mqtt.acknowledging import Acknowledging
from connectors.mqtt.canary import Canary
from connectors.mqtt.columns import Columns
from connectors.mqtt.config import MqttSourceConfig
from connectors.mqtt.incoming import MOST_HELD, Incoming
from connectors.mqtt.protocol.packets import Packet, Pubcomp, Publish, Pubrel
from connectors.mqtt.protocol.topics import TopicPatterns, why_no_name
from connectors.mqtt.session.choose import session
from connectors.mqtt.session.session import Session
from connectors.mqtt.session.settings import Granted, Grants
from connectors.mqtt.window import Window
from connectors.records import Lane, Records
from connectors.source import Event, LaneBegan, LaneEnded, Replays, Settle, Source, SourceDown
from pipelines.errors import ConnectorError

_log = logging.getLogger(__name__)

_OPEN_WAIT = 5.0
"""Seconds that `open` waits for the broker, to raise permanent errors at once."""
_PARTITION = "0"
_SENDS_AGAIN = 0.1
"""Seconds, or two round trips, in which a broker that held messages back sends the next ones, once some are
acknowledged."""
_BEGINS_TO_SEND = 1.0
"""Seconds in which it does after a connection, or after none was read."""


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
        self._config = config
        topic = config.canary_topic
        self._canary = None if config.canary is None or topic is None else Canary(topic, config.canary.every)
        patterns = TopicPatterns(config.topics)
        self._columns = Columns(self.name, patterns, config.key, empty_is_none=config.tombstones != "forward")
        self._window = Window()
        self._incoming = Incoming(config, patterns, self._canary, self._window, lambda: self._acknowledging.send())
        self.counts = self._incoming.counts
        self._acknowledging: Acknowledging
        self._session: Session | None = None
        self._lane: Lane | None = None
        self._epoch = -1
        self._events: list[Event] = []
        self._reported_down: str | None = None
        self._expiry_reported = False
        self._subscribed = False
        self._caught_up = self._sends_until = -math.inf
        """`_sends_until`: until when silence does not tell that the broker has no more messages."""
        self._connect_wait = _OPEN_WAIT

    def open(self, settle: Settle | None = None, *, commits: bool = True) -> None:
        """Connect and subscribe. Waits up to 5 s for the broker; an absent one is an event.

        Raises `ConnectorError` for a login or topic filter that is refused, and QoS 0 where QoS 1 was asked for.
        """
        self._session = session(self._config.client, self._config.settings(), self, self._incoming)
        self._acknowledging = Acknowledging(self.name, self._session, self._window, self._incoming)
        deadline = time.monotonic() + self._connect_wait
        try:
            # Bounded, as the broker may send messages before it grants the subscriptions.
            while not self._subscribed and self.held_bytes < MOST_HELD and time.monotonic() < deadline:
                self._session.turn(min(0.1, deadline - time.monotonic()))
                if self._session.lost:
                    break
        except ConnectorError:
            self.close()
            raise
        self._tell(self.down)

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
        self._tell(self.down)
        pending, lane = self._incoming.pending, self._lane
        if lane is None or not pending.count or not max_records:
            return Records.empty(self.name)
        return self._columns.records(pending.take(max_records, max_bytes), lane)

    def acknowledge(self, positions: Mapping[Lane, int], *, wait: bool = False) -> None:
        """See `Source.acknowledge`. With `wait` raises `ConnectorError` if the broker does not confirm it in 10 s;
        messages that come again meanwhile, as the connection was cut, are acknowledged again and not delivered.
        """
        if self._lane is not None and self._lane in positions:
            self._window.finish(positions[self._lane])
            self._acknowledging.send(keep=wait)
        if wait and self.replays is Replays.SESSION:
            self._acknowledging.wait()

    def rewind(self, lanes: Iterable[Lane]) -> None:
        """See `Source.rewind`: connects anew, so that the broker delivers unacknowledged messages again.

        Messages of QoS 0 do not come again: they are counted (`gone`) and logged.
        """
        if self._lane is None or self._lane not in set(lanes):
            return
        if gone := self._begin_lane(finish=False):
            self.counts.gone += gone
            _log.warning(
                "source %s: %d messages that were published at QoS 0 do not come again: their results are lost",
                self.name,
                gone,
            )
        self._incoming.pending.clear()
        self._window.rewound()
        self._open_session.restart("to have messages delivered again")
        self._tell(self.down)

    def events(self) -> list[Event]:
        """See `Source.events`."""
        if not self._events:
            return []
        events, self._events = self._events, []
        return events

    def standing_still(self, still: bool) -> None:
        """Keep the connection alive without reading, so that messages wait at the broker."""
        self._expect_messages(_BEGINS_TO_SEND)
        if still and self._session is not None:
            self._session.turn(0.0, read=False)
            self._look_at_the_canary(reading=False)
            self._tell(self.down)

    def starved(self) -> bool:
        """See `Source.starved`."""
        waiting = self._incoming.pending.count
        starved = not self._room or (not waiting and self._incoming.starvation.stands(self._window.count))
        if starved:
            self._expect_messages(max(_SENDS_AGAIN, 2 * self._open_session.rtt))
        return starved

    def caught_up(self, emptied_at: float) -> float:
        """See `Source.caught_up`. That nothing comes means that the broker has nothing, but for a moment after it was
        connected to, or held messages back."""
        if self.connected and emptied_at >= self._sends_until:
            self._caught_up = emptied_at
        return self._caught_up

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
        return self._incoming.held

    def begun(self, granted: Granted) -> None:
        """Handle an accepted connection: the session goes on, or another one has begun."""
        self._tell(self.down)
        if granted.expiry < self._config.session_expiry and not self._expiry_reported:
            self._expiry_reported = True
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
        self._window.session_lost()
        if self._lane is not None and self._config.session_expiry:
            self.counts.sessions_lost += 1
            _log.warning("source %s: the broker has lost the session; messages that it held for it are gone", self.name)
        self._begin_lane(finish=True)

    def subscribed(self, grants: Grants) -> None:
        """Handle the granted subscriptions."""
        self._expect_messages(_BEGINS_TO_SEND)
        if self._canary is not None and not self._subscribed:
            self._canary.begun()
        self._subscribed = True

    def received(self, packet: Packet) -> None:
        """PUBREL: the broker releases a message of QoS 2."""
        if isinstance(packet, Pubrel):
            self._window.released(packet.packet_id)
            self._open_session.send(Pubcomp(packet.packet_id))

    def ended(self, reason: str) -> None:
        """The connection is gone: polled records may come again."""
        self._window.cut()
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
        polled = self._window.count - self._incoming.pending.count
        return max(0, self._config.window - max(polled, 0))

    def _fill(self, max_records: int, max_bytes: int, deadline: float) -> None:
        """Receive until there are enough messages, the deadline has passed, or the source is starved."""
        connection, pending = self._open_session, self._incoming.pending
        gathering, starvation = self._incoming.gathering, self._incoming.starvation
        wait = True
        while pending.count < max_records and pending.byte_count < max_bytes:
            rest = deadline - time.monotonic()
            if pending.count:
                rest = min(rest, starvation.rest(self._window.count))
            came = connection.turn(max(rest, 0.0) if wait else 0.0)
            if wait and not came and (rest <= 0 or connection.woken()):
                return
            wait = not gathering.worth_it
            if not wait and (connection.drained or not came):
                window = min(self._config.window, starvation.window)
                pause = min(gathering.pause(min(max_records - pending.count, window - self._window.count)), rest)
                wait = pause <= 0
                if not wait:
                    connection.idle(pause)
                    if connection.woken():
                        return

    def _begin_lane(self, *, finish: bool) -> int:
        """The next lane begins, and the last one ends. `finish`: its records are finished, and not delivered again.

        Returns how many of its messages of QoS 0 were not finished.
        """
        if self._lane is not None:
            self._events.append(LaneEnded(self._lane, finish))
        self._epoch += 1
        self._lane = Lane(self.name, _PARTITION, self._epoch)
        self._events.append(LaneBegan(self._lane, ", ".join(self._config.topics), int(_PARTITION)))
        return self._window.begin()

    def _expect_messages(self, seconds: float) -> None:
        """For so long the broker may have messages that have not come."""
        self._sends_until = max(self._sends_until, time.monotonic() + seconds)

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

    def _tell(self, down: str | None) -> None:
        """Report whether the broker can be reached, and why not."""
        if (down is None) != (self._reported_down is None):
            reason = down or f"connected to {self._config.url}"
            self._events.append(SourceDown(self.name, down is not None, reason))
        self._reported_down = down

    @property
    def _open_session(self) -> Session:
        if self._session is None:
            raise ConnectorError(f"source {self.name} is not open")
        return self._session
