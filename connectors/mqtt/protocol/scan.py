"""Takes messages out of the received bytes of a connection in bulk, as columns, without a Python object for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import numpy as np
import numpy.typing as npt

from connectors.mqtt.protocol.fields import Fields
from connectors.mqtt.protocol.packets import V5, PacketType, Publish, Version
from connectors.mqtt.protocol.properties import NONE, decode_properties
from connectors.mqtt.protocol.reading import (
    LARGEST,
    Aliases,
    FramedPublish,
    Role,
    framed,
    properties_of,
    read_header,
    topic_of,
)
from connectors.mqtt.protocol.reasons import ProtocolError
from connectors.mqtt.protocol.topictable import TopicTable
from pipelines.data.spans import Bytes, Ints, Spans

MANY: Final = 1 << 20
"""The most messages of one scan, by default."""


class Stopped(Enum):
    """Why a scan stopped."""

    NEED_MORE = "need more"
    """The packet after the last message is incomplete."""
    OTHER_PACKET = "other packet"
    """The packet after the last message is complete and no PUBLISH: a `PacketReader` takes it."""
    AGAIN = "again"
    """Scan again: `max_records` messages were taken, or the next one is unusual, perhaps invalid."""


@dataclass(slots=True)
class Fault:
    """A message whose topic or properties break the rules, though its beginning and end are known."""

    row: int
    error: ProtocolError


@dataclass(slots=True)
class Scanned:
    """N messages in the order of arrival, as columns of N. Its memory is not written to any more."""

    buffer: Bytes
    """The scanned bytes, `uint8 (bytes,)`; starts are places in it."""
    topics: TopicTable
    flags: npt.NDArray[np.uint8]
    """The low nibble of the first byte: DUP 8, QoS 6, RETAIN 1."""
    packet_ids: npt.NDArray[np.uint16]
    """0 at QoS 0."""
    topic_codes: npt.NDArray[np.int32]
    """Indexes into `topics.names`; -1 for a message with an invalid topic."""
    payload_starts: Ints
    payload_lengths: Ints
    property_starts: Ints
    property_lengths: Ints
    """Without the length in front; 0 for a message without properties."""
    consumed: int
    """Bytes of the packets that were read."""
    stopped: Stopped
    needed: int = 0
    """Bytes of the next packet, by its header; 0 if the header is incomplete."""
    faults: list[Fault] = field(default_factory=list)
    """Messages that are to be refused one by one; only from a scanner that is not strict."""

    def __len__(self) -> int:
        return len(self.flags)

    @property
    def payloads(self) -> Spans:
        """The payloads as a column."""
        return Spans(self.buffer, self.payload_starts, self.payload_lengths)

    @property
    def properties(self) -> Spans:
        """The properties as a column, for `properties.decode_properties`."""
        return Spans(self.buffer, self.property_starts, self.property_lengths)

    def publishes(self) -> Iterator[Publish]:
        """The messages one by one, as a `PacketReader` yields them. For a scan without faults."""
        raw, names = self.buffer.data, self.topics.names
        columns = (self.flags, self.packet_ids, self.topic_codes, self.payload_starts, self.payload_lengths)
        places = (self.property_starts, self.property_lengths)
        for flags, packet_id, code, start, length, at, size in zip(
            *(column.tolist() for column in (*columns, *places)), strict=True
        ):
            yield Publish(
                names[code],
                bytes(raw[start : start + length]),
                flags >> 1 & 3,
                bool(flags & 1),
                bool(flags & 8),
                packet_id,
                decode_properties(raw[at : at + size]) if size else NONE,
            )

    @property
    def qos(self) -> npt.NDArray[np.uint8]:
        """The QoS of each message, `uint8 (N,)`."""
        qos: npt.NDArray[np.uint8] = self.flags >> np.uint8(1) & np.uint8(3)
        return qos


class Scanner:
    """Scans the bytes of one connection. It keeps the table of topics and the topic aliases.

    A PUBLISH is taken if, and only if, a `PacketReader` of the same role, version, `max_packet` and aliases takes it.
    With `strict=False` wrong topics and properties are accepted, and the messages named in `Scanned.faults`: a broker
    that has accepted such a message sends it again after every reconnect, so the connection must not end by it.
    """

    def __init__(
        self,
        version: Version,
        max_packet: int = LARGEST,
        *,
        role: Role = Role.CLIENT,
        aliases: Aliases | None = None,
        strict: bool = True,
    ) -> None:
        self.version = version
        self.max_packet = max_packet
        self.role = role
        self.aliases = aliases or Aliases()
        self.strict = strict
        self.topics = TopicTable()
        self._known_properties: set[bytes] = set()

    def scan(self, buffer: Bytes, start: int = 0, stop: int | None = None, max_records: int = MANY) -> Scanned:
        """The complete messages in `buffer[start:stop]`, up to the first other packet.

        Raises `ProtocolError` only if the first packet breaks the rules: valid packets before it are returned first.
        """
        stop = len(buffer) if stop is None else stop
        if not 0 <= start <= stop <= len(buffer):
            raise ValueError(f"bytes {start} to {stop} are not in a buffer of {len(buffer)}")
        rows = _Rows.of_frames(buffer, *self._frames(buffer.data, start, stop, max_records), self.version)
        rows = rows.first(self._usable(rows))
        if not len(rows.codes) and max_records > 0:
            return self._single(buffer, start, stop)
        return self._scanned(buffer, rows, start, stop)

    def _frames(
        self, raw: memoryview, start: int, stop: int, most: int
    ) -> tuple[list[int], list[int], list[int], list[int]]:
        """Starts, bodies and ends of complete messages with a valid topic, and the topic's code.

        Ends at the first packet that is no such message, or an unusual one.
        """
        starts: list[int] = []
        bodies: list[int] = []
        ends: list[int] = []
        codes: list[int] = []
        largest, known, at = self.max_packet, self.topics.codes, start
        last = stop - 4
        while at <= last and most > 0:
            if raw[at] & 0xF0 != 0x30:
                break
            length = raw[at + 1]
            body = at + 2
            if length >= 0x80:
                more = raw[body]
                if 0 < more < 0x80:
                    length += (more << 7) - 0x80
                    body += 1
                else:
                    length, body = _long(raw, at, stop)
            end = body + length
            if end > stop or end - at > largest or length < 2:
                break
            topic_start = body + 2
            topic_end = topic_start + (raw[body] << 8) + raw[body + 1]
            if topic_end > end:
                break
            topic = bytes(raw[topic_start:topic_end])
            code = known.get(topic)
            if code is None:
                code = self._new_topic(topic, not starts)
                if code is None:
                    break
                known = self.topics.codes
            starts.append(at)
            bodies.append(body)
            ends.append(end)
            codes.append(code)
            at = end
            most -= 1
        return starts, bodies, ends, codes

    def _new_topic(self, raw: bytes, first: bool) -> int | None:
        if self.topics.full:
            if not first:
                return None
            self.topics = TopicTable()
        try:
            name = topic_of(_named(raw))
        except ProtocolError:
            return None
        return self.topics.add(raw, name) if name else None

    def _usable(self, rows: _Rows) -> int:
        """How many rows come before the first invalid or unusual one."""
        wrong = np.flatnonzero(rows.wrong)
        usable = int(wrong[0]) if len(wrong) else len(rows.codes)
        for row in np.flatnonzero(rows.property_lengths[:usable]).tolist():
            if not self._takes_properties(rows, row):
                return int(row)
        return usable

    def _takes_properties(self, rows: _Rows, row: int) -> bool:
        """Whether the properties of a message keep the rules, and have no topic alias."""
        start = int(rows.property_starts[row])
        raw = rows.buffer[start : start + int(rows.property_lengths[row])].tobytes()
        if raw in self._known_properties:
            return True
        message = _named(b"", len(raw))
        try:
            properties = properties_of(message, memoryview(raw), self.role)
        except ProtocolError:
            return False
        if properties.topic_alias is not None:
            return False
        if len(raw) <= 256:
            if len(self._known_properties) >= 4096:
                self._known_properties.clear()
            self._known_properties.add(raw)
        return True

    def _single(self, buffer: Bytes, start: int, stop: int) -> Scanned:
        """Read the packet at `start` by the reader's rules: a row if it is a message, no row otherwise. Raises its
        error."""
        raw = buffer.data
        header = read_header(raw, start, stop, self.version, self.max_packet)
        if header is None or header[1] > stop or raw[start] >> 4 != PacketType.PUBLISH:
            return self._scanned(buffer, _Rows.of_frames(buffer, [], [], [], [], self.version), start, stop)
        body, end = header
        message = framed(Fields(raw, body, end, "PUBLISH"), raw[start], self.version)
        faults: list[Fault] = []
        code = self._code(message, raw, faults)
        rows = _Rows.of_frames(buffer, [start], [body], [end], [code], self.version)
        return self._scanned(buffer, rows, start, stop, faults)

    def _code(self, message: FramedPublish, raw: memoryview, faults: list[Fault]) -> int:
        alias = None
        try:
            topic = topic_of(message)
            alias = properties_of(message, raw, self.role).topic_alias
        except ProtocolError as error:
            # A message without a topic would need the alias, which cannot be read.
            if self.strict or not message.topic:
                raise
            faults.append(Fault(0, error))
            try:
                topic = topic_of(message)
            except ProtocolError:
                return -1
        name = self.aliases.resolved(topic, alias)
        raw_name = name.encode()
        if self.topics.full and raw_name not in self.topics.codes:
            self.topics = TopicTable()
        return self.topics.add(raw_name, name)

    def _scanned(self, buffer: Bytes, rows: _Rows, start: int, stop: int, faults: Sequence[Fault] = ()) -> Scanned:
        at = rows.end if len(rows.codes) else start
        stopped, needed = self._stopped(buffer.data, at, stop)
        return Scanned(
            buffer,
            self.topics,
            rows.flags,
            rows.packet_ids,
            rows.codes,
            rows.payload_starts,
            rows.payload_lengths,
            rows.property_starts,
            rows.property_lengths,
            at - start,
            stopped,
            needed,
            list(faults),
        )

    def _stopped(self, raw: memoryview, at: int, stop: int) -> tuple[Stopped, int]:
        if at == stop:
            return Stopped.NEED_MORE, 0
        try:
            header = read_header(raw, at, stop, self.version, self.max_packet)
        except ProtocolError:
            return Stopped.AGAIN, 0
        if header is None:
            return Stopped.NEED_MORE, 0
        needed = header[1] - at
        if header[1] > stop:
            return Stopped.NEED_MORE, needed
        return Stopped.AGAIN if raw[at] >> 4 == PacketType.PUBLISH else Stopped.OTHER_PACKET, needed


def _named(topic: bytes, properties: int = 0) -> FramedPublish:
    return FramedPublish(PacketType.PUBLISH << 4, topic, 0, (0, properties), properties)


def _long(raw: memoryview, at: int, stop: int) -> tuple[int, int]:
    """The length of a packet, if it is written in two bytes or more, and where its body begins.

    For an unusual form the length is beyond the buffer, so that the reader's rules decide.
    """
    length = shift = 0
    for place in range(at + 1, min(at + 5, stop)):
        byte = raw[place]
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (length, place + 1) if byte else (LARGEST, stop)
        shift += 7
    return LARGEST, stop


_NONE_WRONG: Final = np.zeros(0, np.bool_)


@dataclass(slots=True)
class _Rows:
    """Columns of messages, as in `Scanned`."""

    buffer: Bytes
    flags: npt.NDArray[np.uint8]
    packet_ids: npt.NDArray[np.uint16]
    codes: npt.NDArray[np.int32]
    payload_starts: Ints
    payload_lengths: Ints
    property_starts: Ints
    property_lengths: Ints
    end: int
    """Where the last message ends."""
    wrong: npt.NDArray[np.bool_] = field(default_factory=lambda: _NONE_WRONG)
    """Messages that break the rules after all."""

    @staticmethod
    def of_frames(
        buffer: Bytes, starts: list[int], bodies: list[int], ends: list[int], codes: list[int], version: Version
    ) -> _Rows:
        """The rows of messages whose starts, bodies, ends and topics are known."""
        stops = np.array(ends, np.int64)
        flags = buffer[np.array(starts, np.int64)] & np.uint8(0xF)
        qos = flags >> 1 & 3
        body = np.array(bodies, np.int64)
        at = body + 2 + _shorts(buffer, body)
        numbered = qos > 0
        ids = _shorts(buffer, at) * numbered
        wrong = (qos == 3) | ((flags >= 8) & ~numbered) | (numbered & (ids == 0))
        at += 2 * numbered
        property_starts = property_lengths = np.zeros(len(at), np.int64)
        if version == V5:
            property_starts, property_lengths = _lengths(buffer, at, stops)
            at = property_starts + property_lengths
        return _Rows(
            buffer,
            flags,
            ids.astype(np.uint16),
            np.array(codes, np.int32),
            at,
            stops - at,
            property_starts,
            property_lengths,
            ends[-1] if ends else 0,
            wrong | (at > stops),
        )

    def first(self, count: int) -> _Rows:
        """The first `count` rows."""
        if count == len(self.codes):
            return self
        return _Rows(
            self.buffer,
            self.flags[:count],
            self.packet_ids[:count],
            self.codes[:count],
            self.payload_starts[:count],
            self.payload_lengths[:count],
            self.property_starts[:count],
            self.property_lengths[:count],
            int(self.payload_starts[count - 1] + self.payload_lengths[count - 1]) if count else 0,
        )


def _shorts(buffer: Bytes, places: Ints) -> Ints:
    """The two byte integers at these places; arbitrary values for places beyond the buffer."""
    last = len(buffer) - 1
    high, low = buffer[np.minimum(places, last)], buffer[np.minimum(places + 1, last)]
    return (high.astype(np.int64) << 8) + low


def _lengths(buffer: Bytes, places: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """Where the properties of messages begin whose length is at these places, and the length.

    For a length of unusual form it is beyond the buffer.
    """
    lengths = buffer[np.minimum(places, len(buffer) - 1)].astype(np.int64)
    starts = places + 1
    for row in np.flatnonzero(lengths >= 0x80).tolist():
        fields = Fields(buffer.data, int(places[row]), max(int(places[row]), int(ends[row])), "PUBLISH")
        try:
            lengths[row], starts[row] = fields.varint("property length"), fields.at
        except ProtocolError:
            lengths[row] = LARGEST
    return starts, lengths
