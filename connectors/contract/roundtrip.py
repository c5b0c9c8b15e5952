"""The contract of a sink and a source on one bus: messages come back unchanged."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Sequence

import pytest

from connectors.contract.bus import LoopBus
from connectors.contract.capabilities import Contract, needs
from connectors.contract.reader import Reader, Received
from connectors.message import Message, block_of


class RoundTripContract(Contract):
    """Sink to source over the real bus. The connector gives the fixture `bus`, and `cannot`."""

    @pytest.fixture
    def bus(self) -> LoopBus:
        """The connector's own `LoopBus`, fresh for each test."""
        raise NotImplementedError(f"{type(self).__name__} has no fixture `bus`")

    @needs("live")
    def test_one_message_goes_through_and_both_ends_stop(self, bus: LoopBus) -> None:
        """Open, close: both ends start, one message passes, both stop."""
        with Reader(bus.source(), bus.patience) as reader:
            reader.poll()
            _send(bus, _numbered(bus, 1))
            assert [record.message.value for record in reader.take(1)] == [bus.payload(0)]

    def test_a_message_from_before_the_source_opened_arrives(self, bus: LoopBus) -> None:
        """Open, close, isolated: sent first, read afterwards."""
        _send(bus, _numbered(bus, 1))
        assert [m.value for m in _read(bus, 1)] == [bus.payload(0)]

    def test_blocks_of_many_sizes_arrive_complete_and_once(self, bus: LoopBus) -> None:
        """Batches: blocks of 1, 10, 100 and 200 messages arrive as a set, without duplicates."""
        sent = _numbered(bus, 311)
        _send(bus, sent[:1], sent[1:11], sent[11:111], sent[111:])
        with Reader(bus.source(), bus.patience) as reader:
            received = reader.take(311, max_records=50) + reader.listen(bus.quiet)
        assert sorted(record.message.value for record in received) == sorted(m.value for m in sent)

    @needs("live")
    def test_sending_and_receiving_at_once_loses_nothing(self, bus: LoopBus) -> None:
        """Parallel: 300 messages in blocks of ten while the source reads and acknowledges."""
        sent = _numbered(bus, 300)
        sender = threading.Thread(target=_send, args=(bus, *(sent[at : at + 10] for at in range(0, 300, 10))))
        with Reader(bus.source(), bus.patience) as reader:
            sender.start()
            received: list[Received] = []
            while len(received) < 300:
                block = reader.take(min(60, 300 - len(received)))
                reader.acknowledge(block, wait=False)
                received += block
            sender.join()
        assert sorted(record.message.value for record in received) == sorted(m.value for m in sent)

    @needs("same_key")
    def test_messages_of_one_key_keep_their_order(self, bus: LoopBus) -> None:
        """Order per key: for each key the payloads come in the order in which they were sent."""
        sent = _numbered(bus, 120, keys=1 if bus.key(0) is None else 5)
        _send(bus, *(sent[at : at + 7] for at in range(0, 120, 7)))
        assert _by_key(_read(bus, 120)) == _by_key(sent)

    @needs("headers")
    def test_headers_survive_the_trip(self, bus: LoopBus) -> None:
        """Metadata: pairs of text in their order, with a repeated name."""
        headers = (("kind", b"test"), ("unit", "\u00b0C".encode()), ("kind", b"again"))
        _send(bus, [Message(bus.payload(0), bus.key(0), headers)])
        assert [m.headers for m in _read(bus, 1)] == [headers]

    @needs("keys", "headers", "binary_headers")
    def test_metadata_survives_the_trip(self, bus: LoopBus) -> None:
        """Metadata: two pairs, a repeated name, bytes that are no text, a value of nothing; and the key."""
        headers = (("kind", b"test"), ("kind", b"\xff\x00"), ("nothing", None))
        _send(bus, [Message(bus.payload(0), b"\x00key\xff", headers)])
        (message,) = _read(bus, 1)
        assert (message.key, message.headers) == (b"\x00key\xff", headers)

    @needs("timestamps")
    def test_timestamps_survive_the_trip(self, bus: LoopBus) -> None:
        """The time of the first sender can be passed on."""
        stamp = int(time.time() * 1000) - 60_000
        _send(bus, [Message(bus.payload(0), timestamp=stamp)])
        assert [m.timestamp for m in _read(bus, 1)] == [stamp]

    @needs("tombstones", "empty", "keys", "same_key")
    def test_tombstones_and_empty_payloads_stay_what_they_are(self, bus: LoopBus) -> None:
        """`None` comes back as `None`, no bytes as no bytes, in their order."""
        values = [bus.payload(0), None, b"", bus.payload(1)]
        _send(bus, [Message(value, b"one key") for value in values])
        assert [m.value for m in _read(bus, 4)] == values

    @needs("huge")
    def test_a_huge_payload_goes_through(self, bus: LoopBus) -> None:
        """5 MB come back byte for byte."""
        sent = bus.payload(0, 5_000_000)
        _send(bus, [Message(sent, bus.key(0))])
        assert [m.value for m in _read(bus, 1)] == [sent]


def _numbered(bus: LoopBus, count: int, keys: int | None = None) -> list[Message]:
    return [Message(bus.payload(n), bus.key(n if keys is None else n % keys)) for n in range(count)]


def _send(bus: LoopBus, *blocks: Sequence[Message]) -> None:
    sink = bus.sink()
    sink.open()
    row = 0
    for block in blocks:
        assert sink.send(block_of(block, row), time.monotonic() + bus.patience) == {}
        row += len(block)
    assert sink.barrier(time.monotonic() + bus.patience) == {}
    sink.close()


def _read(bus: LoopBus, count: int) -> list[Message]:
    with Reader(bus.source(), bus.patience) as reader:
        return [record.message for record in reader.take(count)]


def _by_key(messages: Sequence[Message]) -> dict[bytes | None, list[bytes]]:
    values: dict[bytes | None, list[bytes]] = defaultdict(list)
    for message in messages:
        values[message.key].append(message.value)
    return values
