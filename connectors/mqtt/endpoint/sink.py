"""`MqttEndpointSink`: results to the clients whose messages they answer."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Sequence
from typing import Any

from connectors.mqtt.endpoint.config import REQUEST_HEADERS, MqttEndpointSinkConfig
from connectors.mqtt.endpoint.endpoint import Endpoint
from connectors.mqtt.endpoint.replies import Replies, Reply
from connectors.mqtt.protocol.topics import why_no_name
from connectors.records import Header, Ints, Messages
from connectors.sink import Lost, Refused, Sink
from pipelines.errors import ConnectorError

MAX_IN_FLIGHT = 16 * 2**20
"""Bytes of unacknowledged answers above which `send` waits."""
_LONGEST = 65_535
_LETTER_TOPIC = "streamer-topic"
_LETTER_TEXT = "streamer-text"
_LETTER_RECORD = "streamer-record"
_OURS = frozenset(REQUEST_HEADERS.values())


class MqttEndpointSink(Sink):
    """Publishes each message to the client whose id is its key, whether it has subscribed to the topic or not.

    A message is confirmed when the client has it: by PUBACK at QoS 1, by PUBREC at QoS 2, when it is being written at
    QoS 0. If the client is gone, or refuses the message, it counts as confirmed too, and in `unanswered`. A message
    without a key has no receiver and is refused.

    As MQTT 5 demands, an answer has the correlation data of its request and goes to the request's response topic,
    unless `response_topic` says otherwise.

    `failures`: its messages are dead letters. Instead of the record the client gets JSON, `{"errorMessage": TEXT}`.
    Letters of records that no client sent are confirmed and discarded.
    """

    def __init__(self, config: MqttEndpointSinkConfig) -> None:
        self.name = config.label
        self._config = config
        self._endpoint = Endpoint.of(config.endpoint)
        self._failures = config.failures
        self._sink_open = False
        self._replies = Replies(MAX_IN_FLIGHT, config.timeout)

    def open(self) -> None:
        """Be ready for messages; clients connect once the source listens."""
        if self._replies not in self._endpoint.replies:
            self._endpoint.replies.append(self._replies)
        self._sink_open = True

    def send(self, messages: Messages, deadline: float) -> Refused:
        """As `Sink.send`. `ConnectorError` when it is not open."""
        if not self._sink_open:
            raise ConnectorError(f"{self.name} is not open")
        refused: dict[int, ConnectorError] = {}
        replies: list[Reply] = []
        for index in range(len(messages)):
            try:
                reply = self._reply(messages, index, deadline)
            except ConnectorError as error:
                refused[index] = error
                continue
            if reply is None:
                # There is room again when clients have acknowledged earlier answers, so those have to be sent first.
                self._hand_over(replies)
                replies = []
                reply = self._reply(messages, index, deadline, wait=True)
            if reply is None:
                self.make_room()
                full = ConnectorError(f"{self.name} is full: clients do not take their answers", retriable=True)
                refused |= dict.fromkeys(range(index, len(messages)), full)
                break
            replies.append(reply)
        self._hand_over(replies)
        return refused

    def barrier(self, deadline: float) -> Lost:
        """As `Sink.barrier`."""
        left = self._replies.wait(deadline)
        if left:
            raise ConnectorError(f"{self.name}: {left} answers were not acknowledged by their clients", retriable=True)
        return {}

    def confirmed(self) -> list[Ints]:
        """As `Sink.confirmed`."""
        return self._replies.confirmed()

    def make_room(self) -> None:
        """As `Sink.make_room`."""
        handler, server = self._endpoint.handler, self._endpoint.server
        if handler is not None and server is not None:
            server.call(lambda: handler.make_room(self._replies))

    def behind(self) -> float:
        """As `Sink.behind`."""
        return self._replies.behind()

    def close(self) -> None:
        """Stop sending. Idempotent."""
        self._sink_open = False
        if self._replies in self._endpoint.replies:
            self._endpoint.replies.remove(self._replies)

    def _hand_over(self, replies: list[Reply]) -> None:
        if not replies:
            return
        handler, server = self._endpoint.handler, self._endpoint.server
        if handler is None or server is None:
            for reply in replies:
                self._replies.settle(reply)
            return
        server.call(lambda: handler.answer(replies))

    def _reply(self, messages: Messages, index: int, deadline: float, *, wait: bool = False) -> Reply | None:
        key = None if messages.keys is None else messages.keys[index]
        client_id = "" if key is None else bytes(key).decode(errors="replace")
        headers = (messages.headers[index] if messages.headers is not None else None) or ()
        user_properties: tuple[tuple[str, str], ...] = ()
        asked = _asked_in_letter(headers) if self._failures else _asked(headers)
        if self._failures:
            topic, payload = _failure(headers, self._config.topic)
            if why_no_name(topic):
                # A dead letter of a record that no client sent: it has no receiver, and is done.
                client_id = ""
        else:
            topic = self._config.topic if messages.topics is None else messages.topics[index]
            payload, user_properties = messages.values[index] or b"", _user_properties(headers)
            if key is None:
                raise ConnectorError(
                    f"{self.name}: a result without the key of its record, which is the client's id, has no receiver; "
                    "a record made of several has none"
                )
            if reason := why_no_name(topic):
                raise ConnectorError(f"{self.name}: {topic[:100]!r} is not a topic: {reason}")
        wanted = asked.get("response_topic", b"").decode(errors="replace")
        if self._config.response_topic and not why_no_name(wanted):
            topic = wanted
        return self._replies.begin(
            client_id,
            topic,
            bytes(payload),
            self._config.qos,
            user_properties,
            asked.get("correlation"),
            messages.parents(index),
            deadline if wait else time.monotonic(),
        )


def _failure(headers: Sequence[Header], template: str) -> tuple[str, bytes]:
    """Topic and payload of the answer that a dead letter becomes."""
    letter = {name: value for name, value in headers if name in (_LETTER_TOPIC, _LETTER_TEXT)}
    topic, text = ((letter.get(name) or b"").decode(errors="replace") for name in (_LETTER_TOPIC, _LETTER_TEXT))
    payload = json.dumps({"errorMessage": text}, indent=2, ensure_ascii=False).encode()
    return template.replace("{record.topic}", topic), payload


def _asked(headers: Sequence[Header]) -> dict[str, bytes]:
    """The response topic and the correlation data of the request, as far as it has them."""
    values = dict(headers)
    return {name: value for name, header in REQUEST_HEADERS.items() if (value := values.get(header)) is not None}


def _asked_in_letter(headers: Sequence[Header]) -> dict[str, bytes]:
    """The same for a dead letter, which has them among the metadata of its record."""
    # Our header comes first: later ones are the client's, which may have any content.
    letter = next((value for name, value in headers if name == _LETTER_RECORD), None)
    try:
        record = json.loads(letter or b"{}")
        return {name: _bytes_of(record[name]) for name in REQUEST_HEADERS if name in record}
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}


def _bytes_of(value: Any) -> bytes:
    return base64.b64decode(value["base64"]) if isinstance(value, dict) else str(value).encode()


def _user_properties(headers: Sequence[Header]) -> tuple[tuple[str, str], ...]:
    """Headers that are text, as user properties of MQTT 5."""
    properties: list[tuple[str, str]] = []
    for name, value in headers:
        if name in _OURS:
            continue
        try:
            text = b"" if value is None else bytes(value)
            if len(text) <= _LONGEST and len(name.encode()) <= _LONGEST and "\0" not in name and b"\0" not in text:
                properties.append((name, text.decode()))
        except UnicodeError:
            continue
    return tuple(properties)
