"""Requests over MQTT 5: to a topic that a service reads, and answers at a response topic of this client."""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pydantic import ValidationError

from connectors.message import Message
from connectors.mqtt.config import MqttSourceConfig
from connectors.mqtt.protocol.packets import V5, Packet, Puback, Publish, Subscription
from connectors.mqtt.protocol.properties import Properties
from connectors.mqtt.protocol.reading import LARGEST
from connectors.mqtt.protocol.reasons import ReasonCode
from connectors.mqtt.protocol.topics import why_not_published
from connectors.mqtt.session.choose import session
from connectors.mqtt.session.inbound import PacketInbound
from connectors.mqtt.session.session import Session
from connectors.mqtt.session.settings import Granted, Grants
from connectors.records import Header
from pipelines.definitions.document import Document
from pipelines.definitions.validation import definition_error
from pipelines.errors import DefinitionError
from streamer.client.errors import RequestError
from streamer.client.topictransport import TURN, TopicTransport

CORRELATION: Final = "correlation-id"
"""The user property with the id of the call in hexadecimal digits, for services that do not repeat correlation data."""
_LAST_ID: Final = 65_534
_PATIENCE: Final = 5.0
_AROUND: Final = 1024
"""Bytes of a request besides its payload and topics, at most."""


class MqttTransport(TopicTransport):
    """A client of a broker with one session: it publishes requests at QoS 1, and is subscribed to its response topic.

    The broker keeps the session over a lost connection. Requests that it has not acknowledged are sent again.
    """

    def __init__(
        self,
        url: str,
        *,
        codec: str | Mapping[str, Any] | None,
        reply_to: str | None,
        options: Mapping[str, Any] | None,
        pending: int,
        timeout: float,
    ) -> None:
        """Arguments are those of `streamer.Client`. Raises `DefinitionError`."""
        broker, topic = _split(url)
        super().__init__(broker, topic, codec, pending)
        name = secrets.token_hex(8)
        self._replies = reply_to or f"{topic}/replies/{name}"
        if reason := why_not_published(self._replies):
            raise DefinitionError(f'reply_to: no answer can be published to "{self._replies}": {reason}')
        fields = {"client_id": f"streamer-client-{name}", "version": "5", **dict(options or {})}
        self._config = _config({**fields, "url": broker, "topics": (self._replies,)})
        self._expiry = max(1, ceil(timeout))
        self._session: Session | None = None
        self._lock = threading.Lock()
        self._unsent: deque[tuple[bytes, Publish]] = deque()
        """Requests, with the ids of their calls."""
        self._unacknowledged: dict[int, tuple[bytes, Publish]] = {}
        """The same by packet id, as the broker has to acknowledge them."""
        self._last_id = 0
        self._granted: Granted | None = None
        self._subscribed = False
        self._answers: list[tuple[bytes | None, Message]] = []

    def trouble(self, deadline: float) -> str | None:
        """See `Transport.trouble`."""
        link = self._session
        return None if link is None or link.down is None else f"{self._address}: {link.down}"

    def begun(self, granted: Granted) -> None:
        """See `SessionClient.begun`."""
        self._granted = granted

    def subscribed(self, grants: Grants) -> None:
        """See `SessionClient.subscribed`."""
        self._subscribed = True

    def received(self, packet: Packet) -> None:
        """See `SessionClient.received`."""
        if isinstance(packet, Puback):
            self._acknowledged(packet)
        elif isinstance(packet, Publish):
            if packet.qos and self._session is not None:
                self._session.send(Puback(packet.packet_id))
            self._answers.append(_answer(packet))

    def ended(self, reason: str) -> None:
        """See `SessionClient.ended`."""
        with self._lock:
            self._unsent.extendleft(reversed(self._unacknowledged.values()))
            self._unacknowledged.clear()

    def _connect(self, deadline: float) -> None:
        settings = replace(
            self._config.settings(),
            name=self._address,
            version=V5,
            expiry=self._expiry,
            receive_maximum=65_535,
            max_packet=LARGEST,
            # 2: retained messages are no answers.
            subscriptions=(Subscription(self._replies, 1, retain_handling=2),),
            takes_over=False,
            lasts=False,
        )
        self._subscribed = False
        self._session = session(self._config.client, settings, self, PacketInbound(LARGEST))
        deadline = min(deadline, time.monotonic() + _PATIENCE)
        while not self._subscribed:
            if time.monotonic() >= deadline:
                why = self._session.down or "it does not answer the subscription"
                raise RequestError(f"{self._address} does not answer: {why}; is the broker running there?")
            self._session.turn(TURN)

    def _disconnect(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _send(self, number: bytes, payload: bytes, headers: Sequence[Header], deadline: float) -> None:
        link, granted = self._session, self._granted
        if link is None or granted is None:
            raise RequestError("the client was closed")
        if len(payload) + len(self._topic) + len(self._replies) + _AROUND > granted.max_packet:
            raise RequestError(
                f"{self._address} takes packets of {granted.max_packet} bytes, and the request is larger"
            )
        described = tuple((name, (value or b"").decode("utf-8", "replace")) for name, value in headers)
        properties = Properties(
            response_topic=self._replies,
            correlation_data=number,
            user_properties=((CORRELATION, number.hex()), *described),
            # Nobody waits for the answer later.
            message_expiry_interval=max(1, ceil(deadline - time.monotonic())),
        )
        with self._lock:
            self._unsent.append((number, Publish(self._topic, payload, qos=1, properties=properties)))
        link.wake()

    def _turn(self) -> None:
        link = self._session
        if link is None:
            return
        if link.connected:
            self._publish(link)
        link.turn(TURN)
        if self._answers:
            answers, self._answers = self._answers, []
            self._received(answers)

    def _wake(self) -> None:
        link = self._session
        if link is not None:
            link.wake()

    def _publish(self, link: Session) -> None:
        """Send what waits, as far as the broker takes it ahead of its acknowledgements."""
        assert self._granted is not None
        while len(self._unacknowledged) < min(self._granted.receive_maximum, _LAST_ID):
            with self._lock:
                if not self._unsent:
                    return
                number, message = self._unsent.popleft()
            if not self._calls.waits(number):
                continue
            identity = self._next_id()
            self._unacknowledged[identity] = number, message
            try:
                link.send(replace(message, packet_id=identity))
            except ValueError as error:
                del self._unacknowledged[identity]
                self._calls.fail(number, RequestError(f"the request cannot be sent: {error}"))

    def _next_id(self) -> int:
        while True:
            self._last_id = self._last_id % _LAST_ID + 1
            if self._last_id not in self._unacknowledged:
                return self._last_id

    def _acknowledged(self, packet: Puback) -> None:
        number, _ = self._unacknowledged.pop(packet.packet_id, (None, None))
        if number is None or packet.reason is ReasonCode.SUCCESS:
            return
        if packet.reason is ReasonCode.NO_MATCHING_SUBSCRIBERS:
            text = f'nobody reads the topic "{self._topic}" of {self._address}; is the service running?'
        else:
            said = packet.properties.reason_string
            name = packet.reason.name.lower().replace("_", " ")
            text = f'{self._address} refuses the request at the topic "{self._topic}": {name}'
            text += f" ({said})" if said else ""
        self._calls.fail(number, RequestError(text))


def _answer(packet: Publish) -> tuple[bytes | None, Message]:
    headers = packet.properties.user_properties
    number = packet.properties.correlation_data
    digits = next((value for name, value in headers if name == CORRELATION), None)
    if digits is not None:
        # A service that passes user properties on may put the record's key into the correlation data.
        try:
            number = bytes.fromhex(digits)
        except ValueError:
            pass
    return number, Message(packet.payload, None, tuple((name, value.encode()) for name, value in headers))


def _split(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise DefinitionError(
            "the address holds a login, which errors would show; give username and password in options"
        )
    topic = unquote(parts.path.removeprefix("/"))
    if not parts.netloc or not topic or parts.query or parts.fragment:
        raise DefinitionError(f'"{url}" names no topic; write mqtt://host:1883/TOPIC')
    if reason := why_not_published(topic):
        raise DefinitionError(f'no request can be published to "{topic}": {reason}')
    return f"{parts.scheme}://{parts.netloc}", topic


def _config(fields: dict[str, Any]) -> MqttSourceConfig:
    try:
        return MqttSourceConfig.model_validate(fields)
    except ValidationError as error:
        raise definition_error(error, Document(fields), MqttSourceConfig) from None
