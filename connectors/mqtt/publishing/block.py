"""`Block`: messages of one `send`, ready to be written as PUBLISH packets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from connectors.blockcolumns import lengths, take_rows
from connectors.codecs.letterdocument import document
from connectors.mqtt.protocol.bulk import Codes, PacketIds, encode_publishes
from connectors.mqtt.protocol.fields import LONGEST, written_binary, written_text, written_varint
from connectors.mqtt.protocol.packets import V5, Version
from connectors.mqtt.protocol.topics import why_not_published, why_shunned, without_shunned
from connectors.mqtt.publishing.style import Style
from connectors.records import Ints, Messages

_USER_PROPERTY = b"\x26"
_CONTENT_TYPE = b"\x03"
_RESPONSE_TOPIC = b"\x08"
_CORRELATION_DATA = b"\x09"
_AROUND = 16
"""The most bytes of a packet besides topic, properties and payload."""


class Block:
    """Messages in the order in which they are published. `first` is the number of the first, once `InFlight.add` has
    set it."""

    def __init__(self, messages: Messages, style: Style) -> None:
        self.first = 0
        self.left_out = 0
        """The number of headers that cannot be user properties, as they are no text."""
        self._messages = messages
        self._style = style
        self._wrong: dict[int, str] = {}
        self._shunned: dict[int, str] = {}
        self._topics, self._codes = _dictionary(messages.topics, style.topic)
        self._properties = self._made_properties()
        self.sizes = self._made_sizes()
        """Bytes of each message's packet in MQTT 5, or slightly more, `int64 (N,)`."""

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def rows(self) -> Ints | None:
        """The row that each message answers, `int64 (N,)`; `None` where one may answer several."""
        return self._messages.rows if self._messages.splits is None else None

    def parents(self, index: int) -> Ints:
        """The rows that this message answers."""
        return self._messages.parents(index)

    def topic(self, index: int) -> str:
        """The topic of this message."""
        return self._topics[0 if self._codes is None else int(self._codes[index])]

    def shunned(self) -> dict[int, str]:
        """The reasons why messages cannot be published with their headers, over MQTT 5, by index."""
        return self._shunned

    def wrong(self) -> dict[int, str]:
        """The reasons why messages cannot be published at all, by index."""
        wrong = {code: reason for code, topic in enumerate(self._topics) if (reason := _why_no_topic(topic))}
        if not wrong:
            return self._wrong
        codes = [0] * len(self) if self._codes is None else self._codes.tolist()
        return self._wrong | {
            at: f"the topic {self._topics[code][:100]!r}: {wrong[code]}"
            for at, code in enumerate(codes)
            if code in wrong
        }

    def encoded(
        self,
        version: Version,
        index: Ints,
        packet_ids: PacketIds | None,
        qos: int,
        again: np.ndarray[tuple[int], np.dtype[np.bool_]],
    ) -> bytes:
        """The PUBLISH packets of these messages, which follow one another, as one piece of bytes."""
        payloads: Sequence[bytes | None] = self._column(self._messages.values, index)
        if version != V5 and self._style.letters:
            payloads = self._letters(index)
        properties: bytes | Sequence[bytes | None] | None = None
        if version == V5:
            made = self._properties
            properties = made if isinstance(made, bytes) else self._column(made, index)
        return encode_publishes(
            version,
            self._topics,
            payloads,
            codes=None if self._codes is None else self._codes[index],
            packet_ids=packet_ids,
            qos=qos,
            retain=self._style.retain,
            dup=again if again.any() else False,
            properties=properties,
        )

    def _letters(self, index: Ints) -> list[bytes]:
        messages = self._messages
        return [
            document(
                messages.values[at],
                None if messages.keys is None else messages.keys[at],
                None if messages.headers is None else messages.headers[at],
            )
            for at in index.tolist()
        ]

    def _column(self, column: Sequence[bytes | None], index: Ints) -> Sequence[bytes | None]:
        first, last = int(index[0]), int(index[-1])
        if last - first + 1 == len(index):
            return column[first : last + 1]
        return take_rows(column, index)

    def _made_sizes(self) -> Ints:
        values = self._messages.values
        sizes = lengths(values) + _AROUND
        topics = np.array([len(topic.encode("utf-8", "replace")) for topic in self._topics], np.int64)
        sizes += topics[0] if self._codes is None else topics[self._codes]
        if isinstance(self._properties, bytes):
            return sizes + len(self._properties)
        return sizes + np.fromiter(map(len, self._properties), np.int64, len(self))

    def _made_properties(self) -> bytes | list[bytes]:
        """The properties of all messages, or of each, behind their length."""
        messages, fixed = self._messages, self._style.properties
        headers = messages.headers if self._style.headers else None
        if messages.keys is None and headers is None and messages.extras is None:
            return written_varint(len(fixed)) + fixed
        made = []
        for at in range(len(messages)):
            body = fixed
            key = None if messages.keys is None else messages.keys[at]
            asked = None if messages.extras is None else messages.extras[at]
            if asked:
                body += self._asked(at, asked)
            elif key is not None and len(key) > LONGEST:
                self._wrong[at] = f"a key of {len(key)} bytes: MQTT takes at most {LONGEST} as correlation data"
            elif key is not None:
                body += _CORRELATION_DATA + written_binary(key, "correlation data")
            for header in (None if headers is None else headers[at]) or ():
                pair = _pair(*header)
                self.left_out += pair is None
                if pair is not None and (reason := why_shunned(header[0]) or why_shunned((header[1] or b"").decode())):
                    # A letter is sent in any case: texts of errors have several lines.
                    if self._style.letters:
                        pair = _pair(without_shunned(header[0]), without_shunned((header[1] or b"").decode()).encode())
                    else:
                        self._shunned[at] = f"the header {header[0][:100]!r}: {reason}; headers: false writes none"
                body += pair or b""
            made.append(written_varint(len(body)) + body)
        return made

    def _asked(self, at: int, said: Mapping[str, Any]) -> bytes:
        """The properties of the original record. Its key is not used: MQTT sources derive it from the topic, or there
        is none."""
        kind, response, correlation = (said.get(name) for name in ("content_type", "response_topic", "correlation"))
        body = b""
        try:
            if isinstance(kind, str) and not self._style.content_type:
                if reason := why_shunned(kind):
                    raise ValueError(f"the content type {kind[:100]!r}: {reason}")
                body += _CONTENT_TYPE + written_text(kind, "content type")
            if isinstance(response, str):
                if reason := why_not_published(response):
                    raise ValueError(f"the response topic {response[:100]!r}: {reason}")
                body += _RESPONSE_TOPIC + written_text(response, "response topic")
            if isinstance(correlation, bytes):
                body += _CORRELATION_DATA + written_binary(correlation, "correlation data")
        except ValueError as error:
            self._wrong[at] = str(error)
        return body


@lru_cache(65_536)
def _why_no_topic(topic: str) -> str | None:
    return why_not_published(topic)


def _pair(name: str, value: bytes | None) -> bytes | None:
    """A header as a user property; `None` if it is not text. A null value becomes an empty one."""
    try:
        text = (value or b"").decode()
        return _USER_PROPERTY + written_text(name, "user property") + written_text(text, "user property")
    except ValueError:
        return None


def _dictionary(topics: Sequence[str] | None, default: str) -> tuple[list[str], Codes | None]:
    if topics is None:
        return [default], None
    known: dict[str, int] = {}
    codes = np.array([known.setdefault(topic or default, len(known)) for topic in topics], np.int32)
    return list(known) or [default], codes
