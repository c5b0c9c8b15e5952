"""The contract of a source that replays a session, in addition to that of all sources."""

from __future__ import annotations

import pytest

from connectors.contract.bus import SessionBus
from connectors.contract.capabilities import Contract
from connectors.contract.delivery import numbered
from connectors.contract.reader import Reader
from connectors.source import LaneEnded, Replays


class SessionContract(Contract):
    """Tests for sources whose bus keeps a session for them. The connector gives the fixture `bus`."""

    @pytest.fixture
    def bus(self) -> SessionBus:
        """The connector's own `SessionBus`, fresh for each test."""
        raise NotImplementedError(f"{type(self).__name__} has no fixture `bus`")

    def test_it_says_that_it_replays_a_session(self, bus: SessionBus) -> None:
        """So the service acknowledges finished records at once, and positions are valid in this process only."""
        assert bus.source().replays is Replays.SESSION

    def test_a_connection_that_is_cut_keeps_the_lane_and_doubles_nothing(self, bus: SessionBus) -> None:
        """Weak connection: unfinished records that the bus sends again are not delivered twice.

        They can be acknowledged.
        """
        sent = numbered(bus, 8)
        bus.feed(sent[:5])
        with Reader(bus.source(), bus.patience) as reader:
            received = reader.take(5)
            reader.acknowledge(received[:2])
            bus.drop(reader.source)
            bus.feed(sent[5:])
            received += reader.take(3) + reader.listen(bus.quiet)
            assert [record.message.value for record in received] == [message.value for message in sent]
            assert len({record.lane for record in received}) == 1
            assert not reader.events(LaneEnded)
            reader.acknowledge(received)
        with Reader(bus.source(), bus.patience) as reader:
            assert reader.listen(bus.quiet) == []

    def test_a_lost_session_ends_its_lane_and_lets_finish_what_is_in_hand(self, bus: SessionBus) -> None:
        """No record comes again, so unfinished ones may not be discarded; new records come in a new lane."""
        sent = numbered(bus, 6)
        bus.feed(sent[:4])
        with Reader(bus.source(), bus.patience) as reader:
            old = reader.take(4)
            bus.forget(reader.source)
            between = reader.until(lambda r: bool(r.events(LaneEnded)) and bool(r.lanes) and bus.hears(r.source))
            assert between == []
            assert [(event.lane, event.finish) for event in reader.events(LaneEnded)] == [(old[0].lane, True)]
            bus.feed(sent[4:])
            new = reader.take(2)
            assert [record.message.value for record in new] == [message.value for message in sent[4:]]
            # A late acknowledgement for the ended lane acknowledges nothing of the new one.
            reader.acknowledge(old)
        with Reader(bus.source(), bus.patience) as reader:
            assert [record.message.value for record in reader.take(2)] == [message.value for message in sent[4:]]

    def test_a_lane_of_a_lost_session_cannot_be_rewound(self, bus: SessionBus) -> None:
        """A rewind that comes too late is ignored, and does not affect the new lane."""
        sent = numbered(bus, 3)
        bus.feed(sent[:2])
        with Reader(bus.source(), bus.patience) as reader:
            old = reader.take(2)
            bus.forget(reader.source)
            reader.until(lambda r: bool(r.events(LaneEnded)) and bool(r.lanes) and bus.hears(r.source))
            reader.source.rewind([old[0].lane])
            bus.feed(sent[2:])
            received = reader.take(1) + reader.listen(bus.quiet)
            assert [record.message.value for record in received] == [sent[2].value]
            assert len(reader.events(LaneEnded)) == 1
