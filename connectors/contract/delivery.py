"""The contract of a source, second half: which records are delivered again, and which are not."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping

from connectors.contract.bus import SourceBus
from connectors.contract.capabilities import Contract, needs
from connectors.contract.reader import Reader, Received
from connectors.message import Message
from connectors.records import Lane
from connectors.source import LaneEnded


class DeliveryContract(Contract):
    """Acknowledging, restarting, rewinding, losing lanes. Part of `SourceContract`."""

    @needs("restart")
    def test_unacknowledged_records_come_again_in_order_after_a_restart(self, bus: SourceBus) -> None:
        """Checkpoint capture: A and B acknowledged, C, D and E not; the next process gets exactly C, D, E in order."""
        sent = [Message(bus.payload(number), bus.key(number), partition=0) for number in range(5)]
        bus.feed(sent)
        with Reader(bus.source(), bus.patience) as reader:
            received = reader.take(5)
            reader.acknowledge(received[:2])
        with Reader(bus.source(), bus.patience) as reader:
            again = reader.take(3) + reader.listen(bus.quiet)
        assert _values(again) == [m.value for m in sent[2:]]

    @needs("restart", "positions")
    def test_a_record_has_the_same_position_after_a_restart(self, bus: SourceBus) -> None:
        """Positions are those of the bus, so that they mean the same to another process."""
        bus.feed([Message(bus.payload(number), bus.key(number), partition=0) for number in range(5)])
        with Reader(bus.source(), bus.patience) as reader:
            received = reader.take(5)
            reader.acknowledge(received[:2])
        with Reader(bus.source(), bus.patience) as reader:
            again = reader.take(3)
        assert [record.position for record in again] == [record.position for record in received[2:]]

    @needs("restart")
    def test_closing_acknowledges_nothing(self, bus: SourceBus) -> None:
        """At least once: records that were delivered and not acknowledged are delivered to the next process."""
        bus.feed(numbered(bus, 20))
        with Reader(bus.source(), bus.patience) as reader:
            first = reader.take(20)
        with Reader(bus.source(), bus.patience) as reader:
            assert sorted(_values(reader.take(20))) == sorted(_values(first))

    @needs("restart")
    def test_acknowledged_records_never_come_again_after_a_restart(self, bus: SourceBus) -> None:
        """After all records were acknowledged a restart delivers only new ones."""
        sent = numbered(bus, 21)
        bus.feed(sent[:20])
        with Reader(bus.source(), bus.patience) as reader:
            reader.acknowledge(reader.take(20))
        bus.feed(sent[20:])
        with Reader(bus.source(), bus.patience) as reader:
            assert _values(reader.take(1) + reader.listen(bus.quiet)) == [sent[20].value]

    @needs("restart")
    def test_an_acknowledgement_without_waiting_arrives_with_a_later_one(self, bus: SourceBus) -> None:
        """Acknowledgements may be late, but a later one never overrides them."""
        bus.feed(numbered(bus, 20))
        with Reader(bus.source(), bus.patience) as reader:
            received = reader.take(20)
            reader.acknowledge(received[:5], wait=False)
            reader.acknowledge(received[:10], wait=False)
            reader.acknowledge(received, wait=True)
        with Reader(bus.source(), bus.patience) as reader:
            assert reader.listen(bus.quiet) == []

    @needs("rewind")
    def test_a_rewind_delivers_again_from_the_last_acknowledged_position(self, bus: SourceBus) -> None:
        """Unacknowledged records come again, in order, in a lane of a higher epoch; acknowledged ones do not."""
        sent = [Message(bus.payload(number), bus.key(number), partition=0) for number in range(6)]
        bus.feed(sent)
        with Reader(bus.source(), bus.patience) as reader:
            received = reader.take(6)
            reader.acknowledge(received[:2])
            old = received[0].lane
            reader.source.rewind([old])
            again = reader.take(4) + reader.listen(bus.quiet)
            assert _values(again) == [m.value for m in sent[2:]]
            assert {record.lane.partition for record in again} == {old.partition}
            assert min(record.lane.epoch for record in again) > old.epoch
            assert old in [event.lane for event in reader.events(LaneEnded)]

    @needs("rewind", "positions")
    def test_a_record_has_the_same_position_after_a_rewind(self, bus: SourceBus) -> None:
        """The lane is another one, the record's position stays."""
        bus.feed([Message(bus.payload(number), bus.key(number), partition=0) for number in range(6)])
        with Reader(bus.source(), bus.patience) as reader:
            received = reader.take(6)
            reader.acknowledge(received[:2])
            reader.source.rewind([received[0].lane])
            assert [record.position for record in reader.take(4)] == [record.position for record in received[2:]]

    @needs("rewind", "restart")
    def test_acknowledging_an_ended_lane_is_ignored(self, bus: SourceBus) -> None:
        """A position of an earlier epoch acknowledges nothing: a late batch must not skip records."""
        bus.feed([Message(bus.payload(number), bus.key(number), partition=0) for number in range(4)])
        with Reader(bus.source(), bus.patience) as reader:
            received = reader.take(4)
            reader.source.rewind([received[0].lane])
            reader.take(4)
            reader.acknowledge(received)
        with Reader(bus.source(), bus.patience) as reader:
            assert _values(reader.take(4)) == _values(received)

    @needs("rewind", "partitions")
    def test_a_rewind_leaves_other_lanes_alone(self, bus: SourceBus) -> None:
        """Only the lanes named are delivered again."""
        bus.feed(numbered(bus, 10 * bus.partitions))
        with Reader(bus.source(), bus.patience) as reader:
            received = reader.take(10 * bus.partitions)
            lane = received[0].lane
            reader.source.rewind([lane])
            again = reader.take(10) + reader.listen(bus.quiet)
            assert {record.lane.partition for record in again} == {lane.partition}
            assert sorted(_values(again)) == sorted(_values(record for record in received if record.lane == lane))
            assert {record.lane for record in received} - {lane} <= reader.lanes

    def test_unacknowledged_records_do_not_stop_the_flow(self, bus: SourceBus) -> None:
        """Saturated: half of the backlog is polled and not acknowledged for a while; the rest is delivered later."""
        bus.feed(numbered(bus, 400))
        with Reader(bus.source(), bus.patience) as reader:
            first = reader.take(100)
            reader.source.standing_still(True)
            time.sleep(bus.quiet)
            reader.source.standing_still(False)
            reader.acknowledge(first)
            rest = reader.take(300)
            reader.acknowledge(rest)
        assert len({record.message.value for record in first + rest}) == 400

    def test_a_starved_source_goes_on_when_something_is_acknowledged(self, bus: SourceBus) -> None:
        """Window: a source is starved when all unacknowledged records that the bus allows are polled.

        Without such a limit it never is.
        """
        count = 3 * (bus.window or 50)
        bus.feed(numbered(bus, count))
        with Reader(bus.source(), bus.patience) as reader:
            assert not reader.source.starved(), "it is starved with nothing to acknowledge"
            received: list[Received] = []
            while len(received) < count:
                received += reader.take(min(bus.window or count, count - len(received)))
                # It may take the source a moment to notice that no more records come.
                more = reader.listen(bus.quiet) if bus.window else []
                assert not more, f"{len(more)} records came beyond the window"
                assert reader.source.starved() == bool(bus.window)
                reader.acknowledge(received)
            assert reader.listen(bus.quiet) == []
            assert not reader.source.starved()
        assert len({record.message.value for record in received}) == count

    @needs("held")
    def test_a_source_holds_a_bounded_number_of_bytes_while_nobody_polls(self, bus: SourceBus) -> None:
        """Memory: a backlog of three times the bound is not fetched into memory at once, and still arrives complete."""
        size = 20_000
        count = 3 * bus.held_at_most // size + 10
        for start in range(0, count, 50):
            bus.feed(
                [
                    Message(bus.payload(number, size), bus.key(number), partition=number % bus.partitions)
                    for number in range(start, min(count, start + 50))
                ]
            )
        with Reader(bus.source(), bus.patience) as reader:
            received = reader.take(1)
            most = 0
            for _ in range(10):
                time.sleep(bus.quiet / 10)
                most = max(most, bus.held_bytes(reader.source))
            received += reader.take(count - 1)
        assert most <= bus.held_at_most
        assert len({record.message.value for record in received}) == count

    @needs("rewind")
    def test_every_record_arrives_when_some_are_delivered_again(self, bus: SourceBus) -> None:
        """Lossy: every tenth record fails once and its lane is rewound; all arrive, and none is skipped."""
        sent = numbered(bus, 100)
        bus.feed(sent)
        failing = {m.value for m in sent[::10]}
        with Reader(bus.source(), bus.patience) as reader:
            done: set[bytes] = set()
            deadline = time.monotonic() + bus.patience
            while len(done) < 100 and time.monotonic() < deadline:
                good, bad = _split(reader.poll(max_records=25), failing)
                done.update(_values(good))
                reader.acknowledge(good)
                if bad:
                    reader.source.rewind(bad)
        assert done == {m.value for m in sent}

    @needs("restart")
    def test_every_record_arrives_through_restarts(self, bus: SourceBus) -> None:
        """Lossy through restarts: the process ends when a record fails; later processes get all records."""
        sent = numbered(bus, 40)
        bus.feed(sent)
        failing = {m.value for m in sent[::10]}
        done: set[bytes] = set()
        deadline = time.monotonic() + 2 * bus.patience
        while len(done) < 40 and time.monotonic() < deadline:
            with Reader(bus.source(), bus.patience) as reader:
                bad: set[Lane] = set()
                while not bad and len(done) < 40 and time.monotonic() < deadline:
                    good, bad = _split(reader.poll(max_records=25), failing)
                    done.update(_values(good))
                    reader.acknowledge(good)
        assert done == {m.value for m in sent}

    @needs("revoke")
    def test_lanes_are_settled_before_they_are_taken_away(self, bus: SourceBus) -> None:
        """Rebalance: the polling thread calls `settle`; the returned positions are acknowledged for the next owner."""
        bus.feed(numbered(bus, 10 * bus.partitions))
        asked: list[tuple[set[Lane], int]] = []
        received: list[Received] = []

        def settle(lanes: Iterable[Lane], deadline: float) -> Mapping[Lane, int]:
            assert deadline > time.monotonic()
            asked.append((set(lanes), threading.get_ident()))
            return {lane: _of(received, lane)[6].position for lane in lanes if _of(received, lane)}

        reader = Reader(bus.source(), bus.patience, settle)
        with reader:
            received += reader.take(10 * bus.partitions)
            bus.take_away(reader.source)
            again = reader.until(lambda r: bool(r.events(LaneEnded)))
            gone = {event.lane for event in reader.events(LaneEnded)}
            assert asked, "lanes were taken away without asking to settle them"
            assert set.union(*(lanes for lanes, _ in asked)) == gone
            assert {thread for _, thread in asked} == {threading.get_ident()}
            bus.give_back(reader.source)
            again += _back(reader, gone)
            expected = {record.message.value for lane in gone for record in _of(received, lane)[6:]}
            again += _until_complete(reader, expected, again) + reader.listen(bus.quiet)
        # A lane that only changed its owner for a moment may begin, and so deliver, more than once.
        assert set(_values(again)) == expected

    @needs("revoke")
    def test_a_lane_that_was_taken_away_acknowledges_nothing(self, bus: SourceBus) -> None:
        """Rebalance: a batch that is late for its lane must not move the position of the next owner."""
        bus.feed(numbered(bus, 10 * bus.partitions))
        with Reader(bus.source(), bus.patience) as reader:
            received = reader.take(10 * bus.partitions)
            bus.take_away(reader.source)
            again = reader.until(lambda r: bool(r.events(LaneEnded)))
            gone = {event.lane for event in reader.events(LaneEnded)}
            late = [record for record in received if record.lane in gone]
            reader.acknowledge(late)
            bus.give_back(reader.source)
            again += _back(reader, gone)
            reader.acknowledge(late)
            again += _until_complete(reader, set(_values(late)), again) + reader.listen(bus.quiet)
        assert set(_values(again)) == set(_values(late))
        assert not {record.lane for record in again} & gone

    @needs("revoke", "partitions")
    def test_lanes_that_stay_go_on_while_others_are_taken_away(self, bus: SourceBus) -> None:
        """Rebalance: the lanes that are left deliver new records, once; those that are gone deliver none here."""
        bus.feed(numbered(bus, 2 * bus.partitions))
        with Reader(bus.source(), bus.patience) as reader:
            reader.acknowledge(reader.take(2 * bus.partitions))
            bus.take_away(reader.source)
            reader.until(lambda r: bool(r.events(LaneEnded)) and bool(r.lanes))
            kept = {lane.partition for lane in reader.lanes}
            bus.feed([Message(bus.payload(900 + n), bus.key(900 + n), partition=n) for n in range(bus.partitions)])
            received = reader.take(len(kept)) + reader.listen(bus.quiet)
        assert sorted(record.lane.partition for record in received) == sorted(kept)
        assert len(kept) < bus.partitions


def numbered(bus: SourceBus, count: int) -> list[Message]:
    """Messages with their numbers as payloads, distributed to the bus's partitions in turn."""
    return [Message(bus.payload(number), bus.key(number), partition=number % bus.partitions) for number in range(count)]


def _of(received: Iterable[Received], lane: Lane) -> list[Received]:
    return [record for record in received if record.lane == lane]


def _back(reader: Reader, gone: set[Lane]) -> list[Received]:
    places = {lane.partition for lane in gone}
    return reader.until(lambda r: {lane.partition for lane in r.lanes} >= places)


def _until_complete(reader: Reader, expected: set[bytes], so_far: list[Received]) -> list[Received]:
    received: list[Received] = []
    deadline = time.monotonic() + reader.patience
    while not expected <= set(_values(so_far + received)) and time.monotonic() < deadline:
        received += reader.poll()
    return received


def _values(received: Iterable[Received]) -> list[bytes]:
    return [record.message.value for record in received]


def _split(received: list[Received], failing: set[bytes]) -> tuple[list[Received], set[Lane]]:
    """The records of each lane before its first failing record, and the lanes with a failure. A record fails once."""
    good: list[Received] = []
    bad: set[Lane] = set()
    for record in received:
        if record.lane in bad:
            continue
        if record.message.value in failing:
            failing.discard(record.message.value)
            bad.add(record.lane)
        else:
            good.append(record)
    return good, bad
