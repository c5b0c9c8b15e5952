"""The contract of a sink: which messages it accepts, in which order they arrive, and when they are confirmed."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import numpy as np
import pytest

from connectors.contract.bus import SinkBus
from connectors.contract.capabilities import needs
from connectors.contract.faults import FaultContract
from connectors.contract.measures import check_measures
from connectors.message import Message, block_of
from connectors.records import Messages
from connectors.sink import Sink


class SinkContract(FaultContract):
    """Tests for every sink. The connector provides the fixture `bus`, and `cannot`."""

    @pytest.fixture
    def bus(self) -> SinkBus:
        """The connector's own `SinkBus`, fresh for each test."""
        raise NotImplementedError(f"{type(self).__name__} has no fixture `bus`")

    def test_opens_and_closes(self, bus: SinkBus) -> None:
        """A sink opens and closes without a message, closes twice, and starts again afterwards."""
        for _ in range(2):
            sink = bus.sink()
            sink.open()
            sink.close()
            sink.close()

    @needs("read")
    def test_messages_sent_one_by_one_have_arrived_in_order_after_a_barrier(self, bus: SinkBus) -> None:
        """Output only, sequential: messages sent one by one have arrived after the barrier, complete and in order."""
        sent = _numbered(bus, 20)
        sink = _open(bus)
        for number, message in enumerate(sent):
            assert sink.send(block_of([message], number), _soon(bus)) == {}
        assert sink.barrier(_soon(bus)) == {}
        sink.close()
        assert [m.value for m in bus.read_back(20)] == [m.value for m in sent]

    @needs("read")
    def test_a_batch_arrives_complete(self, bus: SinkBus) -> None:
        """Output only, batch: a block of a thousand messages has arrived after the barrier, none of them twice."""
        sent = _numbered(bus, 1000)
        _deliver(bus, sent)
        assert sorted(m.value for m in bus.read_back(1000)) == sorted(m.value for m in sent)

    def test_a_barrier_with_nothing_sent_is_passed(self, bus: SinkBus) -> None:
        """A barrier without messages returns at once."""
        sink = _open(bus)
        began = time.monotonic()
        assert sink.barrier(_soon(bus)) == {}
        assert time.monotonic() - began < bus.patience / 2
        sink.close()

    def test_its_measures_can_be_read_at_any_time(self, bus: SinkBus) -> None:
        """Metrics: before it opens, while it sends, and after it is closed; each name stands once."""
        sink = bus.sink()
        check_measures(sink)
        sink.open()
        assert sink.send(block_of(_numbered(bus, 2)), _soon(bus)) == {}
        assert sink.barrier(_soon(bus)) == {}
        check_measures(sink)
        sink.close()
        check_measures(sink)

    def test_an_empty_block_is_taken(self, bus: SinkBus) -> None:
        """A batch all of whose rows were dropped gives no messages, and that is no error."""
        sink = _open(bus)
        assert sink.send(block_of([]), _soon(bus)) == {}
        assert sink.barrier(_soon(bus)) == {}
        sink.close()

    @needs("read")
    def test_messages_arrive_in_order(self, bus: SinkBus) -> None:
        """Order: over many blocks, messages to one partition keep the order in which they were sent."""
        sink = _open(bus)
        keys = [bus.key(number) for number in range(100)]
        for start in range(0, 100, 7):
            block = [Message(bus.payload(n), keys[n]) for n in range(start, min(start + 7, 100))]
            assert sink.send(block_of(block, start), _soon(bus)) == {}
        assert sink.barrier(_soon(bus)) == {}
        sink.close()
        arrived = [m.value for m in bus.read_back(100)]
        assert arrived == [bus.payload(number) for number in range(100)]

    @needs("read", "keys")
    def test_keys_arrive(self, bus: SinkBus) -> None:
        """A message arrives with the key that it was sent with."""
        sent = _numbered(bus, 5)
        _deliver(bus, sent)
        assert {m.value: m.key for m in bus.read_back(5)} == {m.value: m.key for m in sent}

    @needs("read", "keys", "binary_keys")
    def test_keys_may_be_any_bytes_or_none(self, bus: SinkBus) -> None:
        """Keys are bytes, not text; no key and an empty key are different things."""
        sent = [Message(bus.payload(n), key) for n, key in enumerate([b"\x00\xff\n", None, b""])]
        _deliver(bus, sent)
        assert {m.value: m.key for m in bus.read_back(3)} == {m.value: m.key for m in sent}

    @needs("read", "headers")
    def test_headers_arrive(self, bus: SinkBus) -> None:
        """Metadata: names in their order, repeated names, empty values, or none at all; in any kind of sequence."""
        headers = (("trace", b"a"), ("kind", "\u00fc".encode()), ("trace", b"again"), ("empty", b""))
        sent = [Message(bus.payload(0), headers=headers), Message(bus.payload(1)), Message(bus.payload(2))]
        block = block_of(sent)
        # As codecs have it that give the same headers to all their payloads.
        block.headers = [headers if row == 2 else given for row, given in enumerate(block.headers or ())]
        _deliver_block(bus, block)
        expected = {bus.payload(0): headers, bus.payload(1): (), bus.payload(2): headers}
        assert {m.value: m.headers for m in bus.read_back(3)} == expected

    @needs("read", "headers", "binary_headers")
    def test_headers_may_be_any_bytes_or_nothing(self, bus: SinkBus) -> None:
        """Metadata is bytes, not text; a null value and an empty one differ."""
        headers = (("trace", b"\x00\xff"), ("trace", b"again"), ("nothing", None), ("empty", b""))
        _deliver(bus, [Message(bus.payload(0), headers=headers), Message(bus.payload(1))])
        assert {m.value: m.headers for m in bus.read_back(2)} == {bus.payload(0): headers, bus.payload(1): ()}

    @needs("read", "timestamps")
    def test_timestamps_arrive(self, bus: SinkBus) -> None:
        """A message keeps its time, in milliseconds."""
        stamp = int(time.time() * 1000) - 5000
        _deliver(bus, [Message(bus.payload(0), timestamp=stamp)])
        assert [m.timestamp for m in bus.read_back(1)] == [stamp]

    @needs("read", "tombstones")
    def test_a_tombstone_is_none(self, bus: SinkBus) -> None:
        """A message without payload arrives as one."""
        _deliver(bus, [Message(None, bus.key(0))])
        assert [m.value for m in bus.read_back(1)] == [None]

    @needs("read", "empty")
    def test_an_empty_payload_is_not_none(self, bus: SinkBus) -> None:
        """A payload of no bytes arrives as such."""
        _deliver(bus, [Message(b"", bus.key(0))])
        assert [m.value for m in bus.read_back(1)] == [b""]

    @needs("read", "huge")
    def test_a_huge_payload_arrives_whole(self, bus: SinkBus) -> None:
        """5 MB arrive byte for byte, and the messages around them too."""
        sent = [Message(bus.payload(n, size), bus.key(n)) for n, size in enumerate((0, 5_000_000, 0))]
        _deliver(bus, sent)
        assert sorted(m.value for m in bus.read_back(3)) == sorted(m.value for m in sent)

    @needs("read", "bytes")
    def test_a_shortened_dead_letter_is_always_accepted(self, bus: SinkBus) -> None:
        """Last resort: every sink accepts a key, headers and a line of JSON, 9 KB together.

        So no record stops a service.
        """
        text = json.dumps({"streamer-topic": "images", "streamer-text": "\u00fc" * 2200}, ensure_ascii=False).encode()
        headers = (("streamer-topic", b"images"), ("streamer-text", "\u00fc".encode() * 2200))
        _deliver(bus, [Message(text, b"images-3-41", headers)])
        assert [m.value for m in bus.read_back(1)] == [text]

    @needs("read", "topics")
    def test_a_message_goes_to_the_topic_that_it_names(self, bus: SinkBus) -> None:
        """Routing: messages of one block go to several topics, each only to its own."""
        other = bus.other_topic()
        sink = _open(bus)
        mine = bus.read_back(0)
        assert mine == []
        block = block_of([Message(bus.payload(n), topic=other) for n in range(3)])
        assert sink.send(block, _soon(bus)) == {}
        assert sink.send(block_of([Message(bus.payload(9))], 3), _soon(bus)) == {}
        assert sink.barrier(_soon(bus)) == {}
        sink.close()
        assert sorted(m.value for m in bus.read_back(3, other)) == [bus.payload(n) for n in range(3)]
        assert [m.value for m in bus.read_back(1)] == [bus.payload(9)]

    @needs("read", "override")
    def test_a_later_message_with_the_same_key_takes_the_place_of_the_first(self, bus: SinkBus) -> None:
        """Override: the later message wins, within a barrier and across two, so that redelivery does no harm."""
        key = bus.key(0)
        for numbers in ((0, 1), (2,)):
            _deliver(bus, [Message(bus.payload(n), key) for n in numbers])
            assert [m.value for m in bus.read_back(1)] == [bus.payload(numbers[-1])]

    @needs("read", "reopen")
    def test_a_second_sink_adds_to_what_is_there(self, bus: SinkBus) -> None:
        """Restart: confirmed messages stay, later ones are added."""
        sent = _numbered(bus, 10)
        _deliver(bus, sent[:5])
        _deliver(bus, sent[5:])
        assert [m.value for m in bus.read_back(10)] == [m.value for m in sent]

    @needs("confirmed")
    def test_every_row_is_confirmed_once(self, bus: SinkBus) -> None:
        """Accounting: after a barrier each row was returned once for each of its messages, and no other row."""
        sink = _open(bus)
        confirmed: list[int] = []
        for start in range(100, 200, 10):
            assert sink.send(block_of(_numbered(bus, 10), start), _soon(bus)) == {}
            confirmed += _confirmed_rows(sink)
        assert sink.barrier(_soon(bus)) == {}
        confirmed += _confirmed_rows(sink)
        assert sorted(confirmed) == list(range(100, 200))
        assert _confirmed_rows(sink) == []
        sink.close()

    @needs("confirmed")
    def test_a_message_confirms_all_rows_that_it_answers(self, bus: SinkBus) -> None:
        """Windows: a message made of several rows confirms each; a row with several messages is returned as often."""
        sink = _open(bus)
        values = [bus.payload(n) for n in range(3)]
        block = Messages(
            np.array([7, 8, 9, 9, 5], np.int64),
            values,
            [bus.key(n) for n in range(3)],
            splits=np.array([0, 3, 4, 5], np.int64),
        )
        assert sink.send(block, _soon(bus)) == {}
        assert sink.barrier(_soon(bus)) == {}
        assert sorted(_confirmed_rows(sink)) == [5, 7, 8, 9, 9]
        sink.close()

    @needs("read", "confirmed")
    def test_confirmed_messages_have_arrived(self, bus: SinkBus) -> None:
        """Messages confirmed before a barrier have arrived; else an acknowledgement would lose records."""
        sink = _open(bus)
        assert sink.send(block_of(_numbered(bus, 20)), _soon(bus)) == {}
        confirmed = _confirmed_rows(sink)
        if confirmed:
            arrived = {m.value for m in bus.read_back(len(confirmed))}
            assert {bus.payload(row) for row in confirmed} <= arrived
        assert sink.barrier(_soon(bus)) == {}
        assert sorted(confirmed + _confirmed_rows(sink)) == list(range(20))
        sink.close()


def _numbered(bus: SinkBus, count: int) -> list[Message]:
    return [Message(bus.payload(number), bus.key(number)) for number in range(count)]


def _open(bus: SinkBus) -> Sink:
    sink = bus.sink()
    sink.open()
    return sink


def _deliver(bus: SinkBus, messages: Sequence[Message]) -> None:
    _deliver_block(bus, block_of(messages))


def _deliver_block(bus: SinkBus, block: Messages) -> None:
    sink = _open(bus)
    assert sink.send(block, _soon(bus)) == {}
    assert sink.barrier(_soon(bus)) == {}
    sink.close()


def _confirmed_rows(sink: Sink) -> list[int]:
    return [row for rows in sink.confirmed() for row in rows.tolist()]


def _soon(bus: SinkBus) -> float:
    return time.monotonic() + bus.patience
