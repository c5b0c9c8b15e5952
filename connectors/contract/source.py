"""The contract of a source: which records it delivers, and how it polls. Redelivery is in `delivery`."""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

from connectors.contract.bus import SourceBus
from connectors.contract.capabilities import needs
from connectors.contract.cycles import FEW, MANY, check_no_cycles
from connectors.contract.delivery import DeliveryContract, numbered
from connectors.contract.measures import check_measures
from connectors.contract.reader import Reader, Received
from connectors.contract.waking import check_await_records, check_wake
from connectors.message import Message
from connectors.source import LaneBegan, LaneEnded, SourceEnded


class SourceContract(DeliveryContract):
    """Tests for every source. The connector provides the fixture `bus`, and `cannot`."""

    @pytest.fixture
    def bus(self) -> SourceBus:
        """The connector's own `SourceBus`, fresh for each test."""
        raise NotImplementedError(f"{type(self).__name__} has no fixture `bus`")

    def test_opens_and_closes(self, bus: SourceBus) -> None:
        """A source opens and closes without a record, closes twice, and starts again afterwards."""
        for _ in range(2):
            source = bus.source()
            source.open()
            source.close()
            source.close()

    def test_records_from_before_it_opened_arrive(self, bus: SourceBus) -> None:
        """Isolated: records that were sent before the source opened are delivered, complete."""
        sent = numbered(bus, 50)
        bus.feed(sent)
        with Reader(bus.source(), bus.patience) as reader:
            received = reader.take(50)
        assert sorted(record.message.value for record in received) == sorted(message.value for message in sent)

    @needs("live")
    def test_records_fed_while_it_is_open_arrive(self, bus: SourceBus) -> None:
        """Sequential: records sent one by one to an open source are delivered, complete."""
        with Reader(bus.source(), bus.patience) as reader:
            reader.poll()
            for message in numbered(bus, 5):
                bus.feed([message])
                assert [record.message.value for record in reader.take(1)] == [message.value]

    @needs("live")
    def test_records_fed_at_the_same_time_arrive(self, bus: SourceBus) -> None:
        """Parallel: sending and receiving at once loses and doubles nothing."""
        sent = numbered(bus, 200)
        feeder = threading.Thread(target=lambda: [bus.feed(sent[at : at + 20]) for at in range(0, 200, 20)])
        with Reader(bus.source(), bus.patience) as reader:
            feeder.start()
            received = reader.take(200, max_records=17)
            feeder.join()
        assert sorted(record.message.value for record in received) == sorted(message.value for message in sent)

    def test_every_record_comes_once_and_in_order_of_its_lane(self, bus: SourceBus) -> None:
        """Without faults there are no duplicates, and each lane keeps the order of its partition."""
        sent = numbered(bus, 200)
        bus.feed(sent)
        with Reader(bus.source(), bus.patience) as reader:
            received = reader.take(200, max_records=33) + reader.listen(bus.quiet)
        assert len(received) == 200
        lanes: dict[str, list[Any]] = defaultdict(list)
        for record in received:
            lanes[record.lane.partition].append(record.message.value)
        assert len(lanes) == bus.partitions
        for values in lanes.values():
            assert values in [[m.value for m in sent if m.partition == number] for number in range(bus.partitions)]

    @needs("keys")
    def test_keys_arrive(self, bus: SourceBus) -> None:
        """A record is delivered with the key that it was fed with."""
        sent = numbered(bus, 10)
        bus.feed(sent)
        assert {m.value: m.key for m in _messages(bus, 10)} == {m.value: m.key for m in sent}

    @needs("keys", "binary_keys")
    def test_keys_may_be_any_bytes_or_none(self, bus: SourceBus) -> None:
        """Keys are bytes, not text; no key and an empty key are different things."""
        keys = [b"\x00\xff\n", None, b"", "ключ".encode("cp1251")]
        bus.feed([Message(bus.payload(i), key, partition=0) for i, key in enumerate(keys)])
        assert [m.key for m in _messages(bus, 4)] == keys

    @needs("headers")
    def test_headers_arrive(self, bus: SourceBus) -> None:
        """Metadata: names in their order, repeated names, empty values, and records without any."""
        headers = (("trace", b"a"), ("kind", "\u00fc".encode()), ("trace", b"again"), ("empty", b""))
        bus.feed([Message(bus.payload(0), headers=headers, partition=0), Message(bus.payload(1), partition=0)])
        assert [m.headers for m in _messages(bus, 2)] == [headers, ()]

    @needs("headers", "binary_headers")
    def test_headers_may_be_any_bytes_or_nothing(self, bus: SourceBus) -> None:
        """Metadata is bytes, not text; a null value and an empty one differ."""
        headers = (("trace", b"\x00\xff"), ("trace", b"again"), ("nothing", None), ("empty", b""))
        bus.feed([Message(bus.payload(0), headers=headers, partition=0), Message(bus.payload(1), partition=0)])
        assert [m.headers for m in _messages(bus, 2)] == [headers, ()]

    @needs("timestamps")
    def test_timestamps_arrive(self, bus: SourceBus) -> None:
        """A record has the time that its sender gave it, in milliseconds."""
        stamp = int(time.time() * 1000) - 5000
        bus.feed([Message(bus.payload(0), timestamp=stamp, partition=0)])
        assert [m.timestamp for m in _messages(bus, 1)] == [stamp]

    @needs("tombstones", "same_key")
    def test_a_tombstone_is_none(self, bus: SourceBus) -> None:
        """A record without payload arrives as `None`, in its place, with its key."""
        bus.feed([Message(bus.payload(0), bus.key(0), partition=0), Message(None, bus.key(0), partition=0)])
        assert [m.value for m in _messages(bus, 2)] == [bus.payload(0), None]

    @needs("empty")
    def test_an_empty_payload_is_not_none(self, bus: SourceBus) -> None:
        """A payload of no bytes arrives as such."""
        bus.feed([Message(b"", bus.key(0), partition=0)])
        assert [m.value for m in _messages(bus, 1)] == [b""]

    @needs("huge")
    def test_a_huge_payload_arrives_whole(self, bus: SourceBus) -> None:
        """5 MB are delivered byte for byte, and the records around them too."""
        sent = [
            Message(bus.payload(number, size), bus.key(number), partition=0)
            for number, size in enumerate((0, 5_000_000, 0))
        ]
        bus.feed(sent)
        assert [m.value for m in _messages(bus, 3)] == [m.value for m in sent]

    def test_every_payload_can_be_had_as_bytes(self, bus: SourceBus) -> None:
        """Dead letters: a record can be written to a sink of bytes, even if its payload is an object."""
        bus.feed(numbered(bus, 3))
        with Reader(bus.source(), bus.patience) as reader:
            failed: dict[int, Exception] = {}
            written: list[bytes | None] = []
            deadline = time.monotonic() + bus.patience
            while len(written) < 3 and time.monotonic() < deadline:
                records = reader.source.poll(3, 2**24, 0.1)
                reader.notice()
                written += records.payloads(np.arange(len(records)), failed)
        assert failed == {}
        assert all(isinstance(payload, bytes) for payload in written)
        assert len(set(written)) == 3

    def test_records_make_no_reference_cycles(self, bus: SourceBus) -> None:
        """What only the garbage collector frees stays in memory for long, as `streamer run` lets it run seldom."""
        bus.feed(numbered(bus, 2 * FEW + MANY))
        with Reader(bus.source(), bus.patience) as reader:
            check_no_cycles(lambda count: reader.take(count, max_records=1) and None)

    @needs("live")
    def test_a_poll_for_one_record_returns_as_soon_as_it_is_there(self, bus: SourceBus) -> None:
        """`max_records` 1 does not wait for the timeout, or every record would be late."""
        first, second = numbered(bus, 2)
        bus.feed([first])
        with Reader(bus.source(), bus.patience) as reader:
            reader.take(1)
            bus.feed([second])
            began = time.monotonic()
            assert len(reader.poll(max_records=1, timeout=bus.patience)) == 1
            assert time.monotonic() - began < bus.patience / 2

    @needs("live")
    def test_a_poll_of_a_silent_bus_waits_for_its_timeout_and_gives_nothing(self, bus: SourceBus) -> None:
        """An idle source neither spins nor oversleeps: the agent's deadlines depend on that."""
        (message,) = numbered(bus, 1)
        bus.feed([message])
        with Reader(bus.source(), bus.patience) as reader:
            reader.take(1)
            began = time.monotonic()
            assert reader.poll(timeout=0.4) == []
            assert time.monotonic() - began > 0.2

    def test_a_poll_gives_no_more_records_than_asked(self, bus: SourceBus) -> None:
        """Every poll keeps to `max_records`, and no record is lost between two polls."""
        bus.feed(numbered(bus, 20))
        with Reader(bus.source(), bus.patience) as reader:
            received: list[Received] = []
            deadline = time.monotonic() + bus.patience
            while len(received) < 20 and time.monotonic() < deadline:
                block = reader.poll(max_records=3, timeout=0.2)
                assert len(block) <= 3
                received += block
        assert len({record.message.value for record in received}) == len(received) == 20

    def test_a_poll_gives_about_as_many_bytes_as_asked(self, bus: SourceBus) -> None:
        """Every poll exceeds `max_bytes` by one record at most; a record larger than that is delivered all the same."""
        sent = [
            Message(bus.payload(number, 10_000), bus.key(number), partition=number % bus.partitions)
            for number in range(9)
        ]
        bus.feed(sent)
        with Reader(bus.source(), bus.patience) as reader:
            blocks: list[list[Received]] = []
            deadline = time.monotonic() + bus.patience
            while sum(len(block) for block in blocks) < 9 and time.monotonic() < deadline:
                blocks.append(reader.poll(max_bytes=25_000 if len(blocks) < 3 else 100, timeout=0.5))
        received = [record.message.value for block in blocks for record in block]
        assert sorted(received) == sorted(m.value for m in sent)

    @needs("backlog")
    def test_it_has_caught_up_once_all_that_had_come_was_polled(self, bus: SourceBus) -> None:
        """Not before: a service would take keys for silent whose records wait."""
        bus.feed(numbered(bus, 20))
        fed = time.monotonic()
        with Reader(bus.source(), bus.patience) as reader:
            received: list[Received] = []
            emptied_at = -math.inf
            deadline = time.monotonic() + bus.patience
            while reader.source.caught_up(emptied_at) < fed and time.monotonic() < deadline:
                began = time.monotonic()
                block = reader.poll(max_records=3, timeout=0.2)
                reader.acknowledge(block)
                received += block
                if len(block) < 3 and not reader.source.starved():
                    emptied_at = began
            assert reader.source.caught_up(emptied_at) >= fed
        assert len(received) == 20

    def test_wake_ends_a_waiting_poll(self, bus: SourceBus) -> None:
        """Another thread can stop a poll that waits, so that a service stops at once."""
        check_wake(bus, bus.source())

    def test_a_source_that_can_tell_says_whether_records_are_there(self, bus: SourceBus) -> None:
        """One poll gets them then, where otherwise a second would wait for the first of them."""
        check_await_records(bus, bus.source())

    def test_a_lane_begins_where_its_first_record_is(self, bus: SourceBus) -> None:
        """`LaneBegan` comes first, and its position, if known, is that of the first record."""
        bus.feed(numbered(bus, 4 * bus.partitions))
        with Reader(bus.source(), bus.patience) as reader:
            received = reader.take(4 * bus.partitions)
            began = {event.lane: event.position for event in reader.events(LaneBegan)}
        first = {record.lane: record.position for record in reversed(received)}
        assert set(first) <= set(began)
        assert all(began[lane] in (-1, position) for lane, position in first.items())
        assert not reader.events(LaneEnded)

    def test_events_are_told_once(self, bus: SourceBus) -> None:
        """`events` returns each event once."""
        bus.feed(numbered(bus, 1))
        with Reader(bus.source(), bus.patience) as reader:
            reader.take(1)
            assert reader.source.events() == []

    @needs("end")
    def test_it_says_once_that_it_has_ended_after_the_last_record(self, bus: SourceBus) -> None:
        """A finite source reports its end, after all records were delivered."""
        bus.feed(numbered(bus, 30))
        bus.end()
        with Reader(bus.source(), bus.patience) as reader:
            before = reader.take(29)
            assert not _ends(reader), "it ended before its last record"
            received = before + reader.until(lambda r: bool(_ends(r)))
            assert len(received) == 30
            assert reader.listen(bus.quiet) == []
            assert len(_ends(reader)) == 1

    def test_its_measures_can_be_read_at_any_time(self, bus: SourceBus) -> None:
        """Metrics: before it opens, while it is read, and after it is closed; each name of a kind stands once."""
        bus.feed(numbered(bus, 3))
        source = bus.source()
        check_measures(source)
        with Reader(source, bus.patience) as reader:
            reader.take(3)
            check_measures(source)
        check_measures(source)

    def test_lag_is_known_without_asking(self, bus: SourceBus) -> None:
        """`lag` returns at once, by (topic, partition), and is never negative."""
        bus.feed(numbered(bus, 10))
        with Reader(bus.source(), bus.patience) as reader:
            reader.take(10)
            began = time.monotonic()
            lag = reader.source.lag()
            assert time.monotonic() - began < 1
        assert all(behind >= 0 for behind in lag.values())
        assert all(isinstance(topic, str) and isinstance(number, int) for topic, number in lag)


def _messages(bus: SourceBus, count: int) -> list[Message]:
    with Reader(bus.source(), bus.patience) as reader:
        return [record.message for record in reader.take(count)]


def _ends(reader: Reader) -> list[SourceEnded]:
    return [event for event in reader.seen if isinstance(event, SourceEnded)]
