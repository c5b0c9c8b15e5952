"""The contract of a perishable source, whose newer records replace unpolled ones."""

from __future__ import annotations

import time

import numpy as np
import pytest

from connectors.contract.bus import LiveBus
from connectors.contract.capabilities import Contract
from connectors.contract.measures import check_measures
from connectors.contract.reader import Reader
from connectors.contract.waking import check_wake
from connectors.source import LaneBegan, LaneEnded, Replays


class PerishableContract(Contract):
    """Tests for sources that are `perishable`. The connector gives the fixture `bus`."""

    @pytest.fixture
    def bus(self) -> LiveBus:
        """The connector's own `LiveBus`, fresh for each test."""
        raise NotImplementedError(f"{type(self).__name__} has no fixture `bus`")

    def test_it_says_that_it_is_perishable_and_replays_nothing(self, bus: LiveBus) -> None:
        """So the service polls when it can run the records, and `starved` does not matter."""
        source = bus.source()
        assert source.perishable
        assert source.replays is Replays.NONE

    def test_a_newer_record_replaces_one_that_nobody_has_polled(self, bus: LiveBus) -> None:
        """The delivered record is the newest; positions rise, and are never used twice."""
        with Reader(bus.source(), bus.patience) as reader:
            for number in range(3):
                bus.show(reader.source, 0, number)
            (received,) = reader.take(1)
            assert bus.number(received.message.value) == 2
            assert reader.poll(timeout=0.0) == []
            bus.show(reader.source, 0, 3)
            (after,) = reader.take(1)
            assert after.lane == received.lane
            assert after.position > received.position

    def test_a_poll_gives_at_most_one_record_of_each_lane(self, bus: LiveBus) -> None:
        """Even if more are asked for: a batch is a snapshot."""
        with Reader(bus.source(), bus.patience) as reader:
            for stream in range(bus.streams):
                for number in (1, 2):
                    bus.show(reader.source, stream, 10 * stream + number)
            received = reader.poll(max_records=2 * bus.streams, timeout=bus.patience)
            assert sorted(bus.number(record.message.value) for record in received) == [
                10 * stream + 2 for stream in range(bus.streams)
            ]
            assert len({record.lane for record in received}) == bus.streams

    def test_streams_take_turns_where_fewer_are_asked_for_than_there_are(self, bus: LiveBus) -> None:
        """A small batch starves no stream, though all of them always have new records."""
        with Reader(bus.source(), bus.patience) as reader:
            lanes = []
            for number in range(3 * bus.streams):
                for stream in range(bus.streams):
                    bus.show(reader.source, stream, number)
                (record,) = reader.take(1, max_records=1)
                lanes.append(record.lane)
            assert len(set(lanes)) == bus.streams
            assert all(lanes.count(lane) == 3 for lane in lanes)

    def test_lanes_that_a_batch_has_already_stay_unread(self, bus: LiveBus) -> None:
        """A batch waits for the other streams, while records of the first ones go on being replaced by newer ones."""
        with Reader(bus.source(), bus.patience) as reader:
            bus.show(reader.source, 0, 1)
            (first,) = reader.take(1)
            bus.show(reader.source, 0, 2)
            bus.show(reader.source, 1, 3)
            others = reader.source.poll_without([first.lane], 10, 2**24, 0.5)
            reader.notice()
            assert [bus.number(value) for value in others.values] == [3]
            bus.show(reader.source, 0, 4)
            (later,) = reader.take(1)
            assert bus.number(later.message.value) == 4

    def test_a_poll_says_when_its_oldest_record_was_received(self, bus: LiveBus) -> None:
        """So that a batch does not wait longer than its oldest record may, counting the time before the poll."""
        with Reader(bus.source(), bus.patience) as reader:
            bus.show(reader.source, 0, 1)
            between = time.monotonic()
            bus.show(reader.source, 1, 2)
            records = reader.source.poll(2, 2**24, bus.patience)
            reader.notice()
            assert len(records) == 2
            assert records.received is not None
            assert records.received <= between

    def test_a_poll_for_one_record_returns_as_soon_as_it_is_there(self, bus: LiveBus) -> None:
        """It waits neither for its timeout nor for the other streams."""
        with Reader(bus.source(), bus.patience) as reader:
            bus.show(reader.source, 0, 1)
            began = time.monotonic()
            assert len(reader.poll(max_records=1, timeout=bus.patience)) == 1
            assert time.monotonic() - began < bus.patience / 2

    def test_a_stream_that_is_lost_ends_its_lane_and_comes_back_in_a_new_one(self, bus: LiveBus) -> None:
        """Its polled records are finished; positions go on, so that no number names two records."""
        with Reader(bus.source(), bus.patience) as reader:
            bus.show(reader.source, 0, 1)
            (before,) = reader.take(1)
            bus.drop(reader.source, 0)
            reader.until(lambda r: bool(r.events(LaneEnded)))
            assert [(event.lane, event.finish) for event in reader.events(LaneEnded)] == [(before.lane, True)]
            began = len(reader.events(LaneBegan))
            bus.connect(reader.source, 0)
            reader.until(lambda r: len(r.events(LaneBegan)) > began)
            bus.show(reader.source, 0, 2)
            (after,) = reader.take(1)
            assert bus.number(after.message.value) == 2
            assert (after.lane.partition, after.lane.source) == (before.lane.partition, before.lane.source)
            assert after.lane.epoch > before.lane.epoch
            assert after.position > before.position

    def test_the_other_streams_go_on_without_one_that_is_lost(self, bus: LiveBus) -> None:
        """One dead stream is no reason to wait."""
        with Reader(bus.source(), bus.patience) as reader:
            bus.drop(reader.source, 0)
            bus.show(reader.source, 1, 7)
            (received,) = reader.take(1)
            assert bus.number(received.message.value) == 7

    def test_every_payload_can_be_had_as_bytes(self, bus: LiveBus) -> None:
        """Dead letters: a payload that is an object can be written to a sink of bytes."""
        with Reader(bus.source(), bus.patience) as reader:
            bus.show(reader.source, 0, 1)
            records = reader.source.poll(1, 2**24, bus.patience)
            failed: dict[int, Exception] = {}
            (written,) = records.payloads(np.arange(len(records)), failed)
        assert failed == {}
        assert isinstance(written, bytes)

    def test_wake_ends_a_waiting_poll(self, bus: LiveBus) -> None:
        """Another thread can stop a poll that waits, so that a service stops at once."""
        check_wake(bus, bus.source())

    def test_acknowledging_and_rewinding_bring_nothing_back(self, bus: LiveBus) -> None:
        """Delivered records never come again."""
        with Reader(bus.source(), bus.patience) as reader:
            bus.show(reader.source, 0, 1)
            received = reader.take(1)
            reader.acknowledge(received)
            reader.source.rewind([received[0].lane])
            assert all(bus.number(record.message.value) != 1 for record in reader.listen(bus.quiet))

    def test_its_measures_can_be_read_at_any_time(self, bus: LiveBus) -> None:
        """Metrics: before it opens, while it is read, and after it is closed."""
        source = bus.source()
        check_measures(source)
        with Reader(source, bus.patience) as reader:
            bus.show(source, 0, 1)
            reader.take(1)
            check_measures(source)
        check_measures(source)
