"""`Publisher`: the thread of an MQTT sink, which alone uses the connection."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import replace
from typing import Literal

import numpy as np

from connectors.backoff import Backoff
from connectors.mqtt.protocol.acknowledgements import ScannedAcks
from connectors.mqtt.protocol.bulk import PacketIds, encode_acks
from connectors.mqtt.protocol.packets import V5, V311, Packet, PacketType, Puback, Pubcomp, Publish, Pubrec
from connectors.mqtt.protocol.properties import NONE
from connectors.mqtt.protocol.reasons import Outcome, ReasonCode, of_publish
from connectors.mqtt.publishing.acks import AckInbound
from connectors.mqtt.publishing.block import Block
from connectors.mqtt.publishing.inflight import IDS, RELEASED, SENT, InFlight, Portion
from connectors.mqtt.publishing.style import Style
from connectors.mqtt.publishing.suspicion import TRIES, Suspicion
from connectors.mqtt.session.choose import session
from connectors.mqtt.session.session import Session
from connectors.mqtt.session.settings import Granted, Grants, Settings
from connectors.records import Ints
from pipelines.errors import ConnectorError, without_traceback

BIRTH_ID = IDS + 1
"""The packet id of birth messages."""
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

    The sink's thread gives blocks (`give`) and reads `confirmed`, `lost` and `failure`; `changed` is notified when one
    of these has changed.
    """

    def __init__(
        self, name: str, settings: Settings, client: Literal["builtin", "paho"], style: Style, window: int | None
    ) -> None:
        self.failure: ConnectorError | None = None
        """Why it has stopped publishing; `None` if it has not."""
        self.confirmed: deque[Ints] = deque()
        """Row numbers of confirmed messages, once for each message."""
        self.lost: dict[int, ConnectorError] = {}
        """Rows whose message the broker refused; guarded by `changed`."""
        self.changed = threading.Condition()
        self.unheard = 0
        """Messages without a subscriber, by the broker's acknowledgement."""
        self.again = 0
        """Messages that were published more than once."""
        self._name = name
        self._client_id = settings.client_id
        self._style = style
        self._qos = style.qos
        self._window = window
        self._session: Session = session(client, settings, self, self._inbound())
        self._before = self._session.down
        self._in_flight = InFlight()
        self._given: deque[Block] = deque()
        self._sizes: deque[tuple[int, int]] = deque()
        self._bytes_given = 0
        self._bytes_done = 0
        self._messages_given = 0
        self._messages_done = 0
        self._oldest: deque[tuple[int, float]] = deque()
        self._backoff = Backoff()
        self._hold_until = 0.0
        self._birth_unanswered = False
        self._written: list[Ints] = []
        self._asked: tuple[int, Ints] | None = None
        self._suspicion = Suspicion()
        self._careful = False
        self._first_asks: int | None = None
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
    def bytes_held(self) -> int:
        """Bytes of unconfirmed messages; a block counts wholly as long as one of its messages is unconfirmed."""
        return self._bytes_given - self._bytes_done

    @property
    def messages_held(self) -> int:
        """The number of unconfirmed messages."""
        return self._messages_given - self._messages_done

    @property
    def connections_lost(self) -> int:
        """Connections that were lost so far."""
        return self._session.lost

    @property
    def waited(self) -> float:
        """Seconds since `give` of the oldest unconfirmed message; 0 if there is none."""
        try:
            return time.monotonic() - self._oldest[0][1] if self.messages_held else 0.0
        except IndexError:
            return 0.0

    def give(self, block: Block, size: int) -> None:
        """Publish these messages, of `size` bytes. Called by the sink's thread."""
        self._bytes_given += size
        self._messages_given += len(block)
        self._oldest.append((self._messages_given, time.monotonic()))
        self._sizes.append((self._messages_given, size))
        self._given.append(block)
        self._session.wake()

    # The methods of `SessionClient`.

    def begun(self, granted: Granted) -> None:
        """See `SessionClient.begun`. Raises `ConnectorError` if the broker lacks a feature that the sink needs."""
        self._check(granted)
        self._asked = None
        self._written.clear()
        released = self._in_flight.resume(session_present=granted.session_present and self._qos > 0)
        if len(released):
            self._session.write(encode_acks(PacketType.PUBREL, released))
        self._announce(self._style.birth)
        self._careful = self._suspicion.careful(self._in_flight.first)
        self._first_asks = self._session.ping() if self._careful else None

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
                self._taken(ids, packet.reason is ReasonCode.NO_MATCHING_SUBSCRIBERS)
            else:
                self._taken_over(ids, packet.reason is ReasonCode.NO_MATCHING_SUBSCRIBERS)

    def ended(self, reason: str) -> None:
        """See `SessionClient.ended`: the next connection publishes unconfirmed messages again."""
        _log.warning("sink %s: the connection is lost, %d messages wait: %s", self._name, self.messages_held, reason)
        refused = self._suspicion.ended(self._in_flight.sent, self._in_flight.first)
        if refused is not None:
            self._lose(np.array([refused]), self._ends_the_connection(refused, reason))

    def _run(self) -> None:
        try:
            while not self._closing:
                self._take_in()
                self._write()
                self._hear()
                self._session.turn(self._longest_wait())
            self._announce(self._style.leaving)
        except ConnectorError as error:
            self.failure = without_traceback(error)
        except Exception as error:  # noqa: BLE001 - the sink has to learn that its thread has ended
            _log.exception("sink %s", self._name)
            self.failure = ConnectorError(f"sink {self._name}: {type(error).__name__}: {error}")
        finally:
            self._session.close()
            self._tell()

    def _take_in(self) -> None:
        while self._given and len(self._given[0]) <= self._in_flight.room:
            self._in_flight.add(self._given.popleft())

    def _write(self) -> None:
        """Publish the messages that may be published now."""
        if not self._session.connected or time.monotonic() < self._hold_until:
            return
        if self._careful and not self._answers():
            return
        while self._in_flight.waiting and self._session.unsent < MOST_UNSENT:
            most = PORTION if not self._qos else min(PORTION, self._free)
            if self._careful:
                most = min(most, self._suspicion.ahead - self._in_flight.on_wire)
            portion = self._in_flight.take(most, numbered=self._qos > 0)
            if portion is None:
                return
            self._write_portion(portion)

    def _answers(self) -> bool:
        """Whether the connection that is used with care has answered its first ping."""
        self._careful = self._suspicion.careful(self._in_flight.first)
        return not self._careful or self._first_asks is None or self._session.answered(self._first_asks)

    def _write_portion(self, portion: Portion) -> None:
        granted = self._session.granted
        assert granted is not None
        portion = self._without_too_large(portion, granted)
        if not len(portion.numbers):
            return
        index = portion.numbers - portion.block.first
        self.again += int(portion.again.sum())
        if self._session.takes_bytes:
            data = portion.block.encoded(granted.version, index, portion.packet_ids, self._qos, portion.again)
            self._session.write(data)
        else:
            ids = [0] * len(index) if portion.packet_ids is None else portion.packet_ids.tolist()
            for at, packet_id, again in zip(index.tolist(), ids, portion.again.tolist(), strict=True):
                self._session.send(portion.block.packet(granted.version, at, packet_id, self._qos, again))
        if not self._qos:
            self._written.append(portion.numbers)

    def _without_too_large(self, portion: Portion, granted: Granted) -> Portion:
        """The portion without messages larger than the broker's limit, which may be known only after the sink accepted
        them."""
        sizes = portion.block.sizes[portion.numbers - portion.block.first]
        large = sizes > granted.max_packet
        if not large.any():
            return portion
        for number, size in zip(portion.numbers[large], sizes[large].tolist(), strict=True):
            self._lose(np.array([number]), self.too_large(size, granted.max_packet))
        fits = ~large
        ids = None if portion.packet_ids is None else portion.packet_ids[fits]
        return Portion(portion.block, portion.numbers[fits], ids, portion.again[fits])

    def too_large(self, size: int, most: int) -> ConnectorError:
        """Why a message of this size is refused."""
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

    def _inbound(self) -> AckInbound:
        return AckInbound(LARGEST_ANSWER, self._acknowledged)

    def _acknowledged(self, acks: ScannedAcks) -> None:
        kinds, reasons, ids = acks.kinds, acks.reasons, acks.packet_ids
        # All at once, as their order does not matter. Nearly always they are of one kind, and none is a failure.
        failed = reasons >= FAILED
        unheard = int(np.count_nonzero(reasons == ReasonCode.NO_MATCHING_SUBSCRIBERS))
        plain = not failed.any()
        for kind, take in ((PacketType.PUBACK, self._taken), (PacketType.PUBREC, self._taken_over)):
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

    def _taken(self, ids: PacketIds, unheard: int) -> None:
        """PUBACK: the broker has these messages."""
        if self._birth_unanswered and BIRTH_ID in ids:
            self._birth_unanswered = False
        self.unheard += unheard
        self._backoff.reset()
        self._confirm(self._in_flight.of_ids(ids, SENT))

    def _taken_over(self, ids: PacketIds, unheard: int) -> None:
        """PUBREC: the broker has these messages, and waits for PUBREL."""
        self.unheard += unheard
        self._backoff.reset()
        if self._birth_unanswered and BIRTH_ID in ids:
            self._session.write(encode_acks(PacketType.PUBREL, np.array([BIRTH_ID], np.uint16)))
        numbers = self._in_flight.of_ids(ids, SENT)
        if len(numbers):
            self._suspicion.progress()
            released = self._in_flight.release(numbers)
            self._session.write(encode_acks(PacketType.PUBREL, released))

    def _completed(self, ids: PacketIds) -> None:
        """PUBCOMP, with any reason: "packet identifier not found" means that the broker has released it already."""
        if self._birth_unanswered and BIRTH_ID in ids:
            self._birth_unanswered = False
        self._confirm(self._in_flight.of_ids(ids, RELEASED))

    def _failed(self, ids: PacketIds, reason: ReasonCode, said: str) -> None:
        """PUBACK or PUBREC with a failure: these messages were not accepted."""
        if self._birth_unanswered and BIRTH_ID in ids:
            self._birth_unanswered = False
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
                self._lose(np.array([number]), ConnectorError(refusal))
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
            self.confirmed.append(self._in_flight.done(numbers))
            self._settle(len(numbers))

    def _lose(self, numbers: Ints, error: ConnectorError) -> None:
        if not len(numbers):
            return
        rows = self._in_flight.done(numbers)
        with self.changed:
            self.lost.update(dict.fromkeys(rows.tolist(), error))
        self._settle(len(numbers))

    def _settle(self, count: int) -> None:
        """`count` more messages are confirmed or lost."""
        self._messages_done += count
        first = self._in_flight.first
        while self._sizes and self._sizes[0][0] <= first:
            self._bytes_done += self._sizes.popleft()[1]
        while self._oldest and self._oldest[0][0] <= first:
            self._oldest.popleft()
        self._tell()

    def _tell(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def _hear(self) -> None:
        """QoS 0: messages written before a ping have arrived once the ping is answered."""
        if self._qos or not self._session.connected:
            return
        if self._asked is not None and self._session.answered(self._asked[0]):
            self._confirm(self._asked[1])
            self._asked = None
        if self._asked is None and self._written:
            self._asked = self._session.ping(), np.concatenate(self._written)
            self._written.clear()

    @property
    def _free(self) -> int:
        """How many more messages may be published ahead of their acknowledgements."""
        granted = self._session.granted
        window = self._window or WINDOW
        if granted is not None:
            careful = self._window is None and self._qos == 2 and granted.version == V311
            window = min(WINDOW_311 if careful else window, granted.receive_maximum)
        return window - self._in_flight.on_wire - self._birth_unanswered

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

    def _announce(self, message: Publish | None) -> None:
        """Publish a birth or last message. Its loss is not reported: the next connection publishes it again."""
        granted = self._session.granted
        if message is None or granted is None or not self._session.connected:
            return
        qos = min(message.qos, granted.max_qos)
        self._birth_unanswered = qos > 0
        properties = message.properties if granted.version == V5 else NONE
        retain = message.retain and granted.retain
        self._session.send(
            replace(message, qos=qos, packet_id=BIRTH_ID if qos else 0, properties=properties, retain=retain)
        )
