"""`Publisher`: the thread of an MQTT sink, which alone uses the connection."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import Literal

import numpy as np

from connectors.backoff import Backoff
from connectors.mqtt.protocol.acknowledgements import ScannedAcks
from connectors.mqtt.protocol.bulk import PacketIds, encode_acks
from connectors.mqtt.protocol.packets import V311, Packet, PacketType, Puback, Pubcomp, Pubrec
from connectors.mqtt.protocol.reasons import Outcome, ReasonCode, of_publish
from connectors.mqtt.publishing.acks import AckInbound
from connectors.mqtt.publishing.announcing import BIRTH_ID, Birth, ConfirmedByPing
from connectors.mqtt.publishing.block import Block
from connectors.mqtt.publishing.inflight import RELEASED, SENT, InFlight, Portion
from connectors.mqtt.publishing.style import Style
from connectors.mqtt.publishing.suspicion import TRIES, Suspicion
from connectors.mqtt.publishing.unconfirmed import Unconfirmed
from connectors.mqtt.session.choose import session
from connectors.mqtt.session.session import Session
from connectors.mqtt.session.settings import Granted, Grants, Settings
from connectors.records import Ints
from pipelines.errors import ConnectorError, without_traceback

FAILED = 0x80
"""Reason codes from this one on are failures."""
PORTION = 512
"""The most messages that are encoded at once."""
MOST_UNSENT = 1 << 20
"""Bytes waiting for the socket, above which no more messages are encoded."""
WINDOW = 2000
"""Messages that are published ahead of their acknowledgements."""
WINDOW_311 = 20
"""The same with QoS 2 over MQTT 3.1.1: mosquitto acknowledges messages beyond its `max_inflight_messages` and loses
them."""
TURN = 0.5
"""Seconds of one wait."""
LARGEST_ANSWER = 1 << 20
"""Bytes of the largest packet that a broker may send to a client that reads no messages."""

_log = logging.getLogger(__name__)


class Publisher:
    """Publishes blocks of messages, at most `window` of them ahead of their acknowledgements.

    The sink's thread gives blocks (`give`) and reads `unconfirmed` and `failure`, of whose changes
    `unconfirmed.changed` is notified.
    """

    def __init__(
        self, name: str, settings: Settings, client: Literal["builtin", "paho"], style: Style, window: int | None
    ) -> None:
        self.failure: ConnectorError | None = None
        """Why it has stopped publishing; `None` if it has not."""
        self.unconfirmed = Unconfirmed()
        """The messages that were given and are not confirmed yet, and those that were lost."""
        self.unheard = 0
        """Messages without a subscriber, by the broker's acknowledgement."""
        self.again = 0
        """Messages that were published more than once."""
        self._name = name
        self._client_id = settings.client_id
        self._style = style
        self._qos = style.qos
        self._window = window
        self._session: Session = session(client, settings, self, AckInbound(LARGEST_ANSWER, self._acknowledged))
        self._before = self._session.down
        self._in_flight = InFlight()
        self._given: deque[Block] = deque()
        self._backoff = Backoff()
        self._hold_until = 0.0
        self._birth = Birth(self._session)
        self._by_ping = ConfirmedByPing(self._session)
        self._suspicion = Suspicion(self._session)
        self._closing = False
        self._thread = threading.Thread(target=self._run, name=f"mqtt sink {name}", daemon=True)

    @property
    def tried(self) -> bool:
        """Whether the first attempt to connect has succeeded or failed."""
        return self.failure is not None or self._session.down != self._before

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def close(self) -> None:
        """Disconnect, without waiting for confirmations."""
        self._closing = True
        self._session.wake()
        self._thread.join()

    @property
    def down(self) -> str | None:
        """Why there is no connection."""
        return self._session.down

    @property
    def granted(self) -> Granted | None:
        """The broker's grants for the last connection."""
        return self._session.granted

    @property
    def connections_lost(self) -> int:
        """Connections that were lost so far."""
        return self._session.lost

    def give(self, block: Block, size: int) -> None:
        """Publish these messages, of `size` bytes. Called by the sink's thread."""
        self.unconfirmed.give(len(block), size)
        self._given.append(block)
        self._session.wake()

    # The methods of `SessionClient`.

    def begun(self, granted: Granted) -> None:
        """See `SessionClient.begun`. Raises `ConnectorError` if the broker lacks a feature that the sink needs."""
        self._check(granted)
        self._by_ping.begin()
        released = self._in_flight.resume(session_present=granted.session_present and self._qos > 0)
        if len(released):
            self._session.write(encode_acks(PacketType.PUBREL, released))
        self._birth.publish(self._style.birth)
        self._suspicion.begin(self._in_flight.first)

    def subscribed(self, grants: Grants) -> None:
        """See `SessionClient.subscribed`: it subscribes to nothing."""

    def received(self, packet: Packet) -> None:
        """See `SessionClient.received`: acknowledgements with properties."""
        if isinstance(packet, (Puback, Pubrec, Pubcomp)):
            ids = np.array([packet.packet_id], np.uint16)
            said = packet.properties.reason_string or ""
            if isinstance(packet, Pubcomp):
                self._completed(ids)
            elif packet.reason.failed:
                self._failed(ids, packet.reason, said)
            elif isinstance(packet, Puback):
                self._puback(ids, packet.reason is ReasonCode.NO_MATCHING_SUBSCRIBERS)
            else:
                self._pubrec(ids, packet.reason is ReasonCode.NO_MATCHING_SUBSCRIBERS)

    def ended(self, reason: str) -> None:
        """See `SessionClient.ended`: the next connection publishes unconfirmed messages again."""
        waiting = self.unconfirmed.messages
        _log.warning("sink %s: the connection is lost, %d messages wait: %s", self._name, waiting, reason)
        refused = self._suspicion.ended(self._in_flight.sent, self._in_flight.first)
        if refused is not None:
            self._lose(refused, self._ends_the_connection(refused, reason))

    def _run(self) -> None:
        try:
            while not self._closing:
                self._take_in()
                self._write()
                if not self._qos and self._session.connected and (numbers := self._by_ping.confirmed()) is not None:
                    self._confirm(numbers)
                self._session.turn(self._longest_wait())
            self._birth.publish(self._style.leaving)
        except ConnectorError as error:
            self.failure = without_traceback(error)
        except Exception as error:  # noqa: BLE001 - the sink has to learn that its thread has ended
            _log.exception("sink %s", self._name)
            self.failure = ConnectorError(f"sink {self._name}: {type(error).__name__}: {error}")
        finally:
            self._session.close()
            self.unconfirmed.tell()

    def _take_in(self) -> None:
        while self._given and len(self._given[0]) <= self._in_flight.room:
            self._in_flight.add(self._given.popleft())

    def _write(self) -> None:
        """Publish the messages that may be published now."""
        if not self._session.connected or time.monotonic() < self._hold_until:
            return
        if self._suspicion.careful and not self._suspicion.answered(self._in_flight.first):
            return
        while self._in_flight.waiting and self._session.unsent < MOST_UNSENT:
            most = PORTION if not self._qos else min(PORTION, self._free)
            if self._suspicion.careful:
                most = min(most, self._suspicion.ahead - self._in_flight.on_wire)
            portion = self._in_flight.take(most, numbered=self._qos > 0)
            if portion is None:
                return
            self._write_portion(portion)

    def _write_portion(self, portion: Portion) -> None:
        granted = self._session.granted
        assert granted is not None
        portion = self._without_too_large(portion, granted)
        if not len(portion.numbers):
            return
        index = portion.numbers - portion.block.first
        self.again += int(portion.again.sum())
        self._session.write(portion.block.encoded(granted.version, index, portion.packet_ids, self._qos, portion.again))
        if not self._qos:
            self._by_ping.wrote(portion.numbers)

    def _without_too_large(self, portion: Portion, granted: Granted) -> Portion:
        """The portion without messages larger than the broker's limit, which may be known only after the sink accepted
        them."""
        sizes = portion.block.sizes[portion.numbers - portion.block.first]
        large = sizes > granted.max_packet
        if not large.any():
            return portion
        for number, size in zip(portion.numbers[large].tolist(), sizes[large].tolist(), strict=True):
            self._lose(number, self.too_large(size, granted.max_packet))
        fits = ~large
        ids = None if portion.packet_ids is None else portion.packet_ids[fits]
        return Portion(portion.block, portion.numbers[fits], ids, portion.again[fits])

    def too_large(self, size: int, most: int) -> ConnectorError:
        """Why a message of this size is refused, for the error."""
        return ConnectorError(
            f"sink {self._name}: a message of {size} bytes with its topic and properties: the broker takes at most "
            f"{most}; raise its maximum packet size (mosquitto: max_packet_size)"
        )

    def _ends_the_connection(self, number: int, reason: str) -> ConnectorError:
        block = self._in_flight.block_of(number)
        index = number - block.first
        return ConnectorError(
            f"sink {self._name}: the connection ended each of the {TRIES} times that this message of "
            f'{block.sizes[index]} bytes was published to "{block.topic(index)}" with no other on the way ({reason}); '
            "a broker that cannot say what it refuses, as over MQTT 3.1.1, does so for a message that is too large "
            "(mosquitto: max_packet_size), and some for a topic that "
            f'client id "{self._client_id}" may not publish to'
        )

    def _acknowledged(self, acks: ScannedAcks) -> None:
        kinds, reasons, ids = acks.kinds, acks.reasons, acks.packet_ids
        # All at once, as their order does not matter. Nearly always they are of one kind, and none is a failure.
        failed = reasons >= FAILED
        unheard = int(np.count_nonzero(reasons == ReasonCode.NO_MATCHING_SUBSCRIBERS))
        plain = not failed.any()
        for kind, take in ((PacketType.PUBACK, self._puback), (PacketType.PUBREC, self._pubrec)):
            chosen = (kinds == int(kind)) if plain else (kinds == int(kind)) & ~failed
            if chosen.any():
                take(ids if chosen.all() else ids[chosen], unheard)
                unheard = 0
        completed = kinds == int(PacketType.PUBCOMP)
        if completed.any():
            self._completed(ids[completed])
        if not plain:
            refused = failed & (kinds <= int(PacketType.PUBREC))
            for code in np.unique(reasons[refused]).tolist():
                self._failed(ids[refused & (reasons == code)], ReasonCode(code), "")

    def _puback(self, ids: PacketIds, unheard: int) -> None:
        """PUBACK: the broker has these messages."""
        self._birth.done(ids)
        self.unheard += unheard
        self._backoff.reset()
        self._confirm(self._in_flight.of_ids(ids, SENT))

    def _pubrec(self, ids: PacketIds, unheard: int) -> None:
        """PUBREC: the broker has these messages, and waits for PUBREL."""
        self.unheard += unheard
        self._backoff.reset()
        if self._birth.expects(ids):
            self._session.write(encode_acks(PacketType.PUBREL, np.array([BIRTH_ID], np.uint16)))
        numbers = self._in_flight.of_ids(ids, SENT)
        if len(numbers):
            self._suspicion.progress()
            released = self._in_flight.release(numbers)
            self._session.write(encode_acks(PacketType.PUBREL, released))

    def _completed(self, ids: PacketIds) -> None:
        """PUBCOMP, with any reason: "packet identifier not found" means that the broker has released it already."""
        self._birth.done(ids)
        self._confirm(self._in_flight.of_ids(ids, RELEASED))

    def _failed(self, ids: PacketIds, reason: ReasonCode, said: str) -> None:
        """PUBACK or PUBREC with a failure: these messages were not accepted."""
        if self._birth.done(ids):
            _log.warning("sink %s: the broker refuses the birth message: %s", self._name, reason.text)
        numbers = self._in_flight.of_ids(ids, SENT)
        if not len(numbers):
            return
        self._suspicion.progress()
        if of_publish(reason) is not Outcome.RETRIABLE:
            for number in numbers.tolist():
                block = self._in_flight.block_of(number)
                topic = block.topic(number - block.first)
                text = f"{reason.text}{f': {said}' if said else ''}"
                if reason is ReasonCode.NOT_AUTHORIZED:
                    text += f'; allow client id "{self._client_id}" to publish to "{topic}"'
                refusal = f'sink {self._name}: the broker refuses the message for "{topic}": {text}'
                self._lose(number, ConnectorError(refusal))
            return
        if time.monotonic() >= self._hold_until:
            wait = self._backoff.wait()
            self._hold_until = time.monotonic() + wait
            _log.warning(
                "sink %s: the broker takes no more at present: %s; trying again in %.1f s",
                self._name,
                reason.text,
                wait,
            )
        self._in_flight.return_(numbers)

    def _confirm(self, numbers: Ints) -> None:
        if len(numbers):
            self._suspicion.progress()
            rows = self._in_flight.done(numbers)
            self.unconfirmed.confirm(rows, len(numbers), self._in_flight.first)

    def _lose(self, number: int, error: ConnectorError) -> None:
        rows = self._in_flight.done(np.array([number]))
        self.unconfirmed.lose(rows, error, self._in_flight.first)

    @property
    def _free(self) -> int:
        """How many more messages may be published ahead of their acknowledgements."""
        granted = self._session.granted
        window = self._window or WINDOW
        if granted is not None:
            careful = self._window is None and self._qos == 2 and granted.version == V311
            window = min(WINDOW_311 if careful else window, granted.receive_maximum)
        return window - self._in_flight.on_wire - self._birth.unanswered

    def _longest_wait(self) -> float:
        held = self._hold_until - time.monotonic()
        return min(TURN, held) if held > 0 else TURN

    def _check(self, granted: Granted) -> None:
        self._qos = min(self._style.qos, granted.max_qos)
        if self._qos < self._style.qos:
            if not self._qos:
                raise ConnectorError(
                    f"sink {self._name}: the broker takes messages of QoS 0 alone, so that they could be lost; allow "
                    "QoS 1 there, or write qos: 0 if that may be"
                )
            _log.warning("sink %s: the broker takes no QoS 2, messages are published with QoS 1", self._name)
        if self._style.retain and not granted.retain:
            raise ConnectorError(f"sink {self._name}: the broker keeps no retained messages; leave out retain")
