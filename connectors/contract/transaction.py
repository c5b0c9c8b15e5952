"""The contract of a transactional sink: messages and acknowledged positions become visible as one, or not at all."""

from __future__ import annotations

import time
from abc import abstractmethod

import pytest

from connectors.contract.bus import SinkBus, SourceBus
from connectors.contract.capabilities import Contract, needs
from connectors.contract.reader import Reader, Received
from connectors.message import Message, block_of
from connectors.records import Lane
from connectors.sink import TransactionalSink, Voided


class TransactionBus(SourceBus, SinkBus):
    """A source's place, fed by the test, and a transactional sink's place, read back by a reader of committed data."""

    @abstractmethod
    def sink(self) -> TransactionalSink:
        """A transactional sink, not open."""


class TransactionContract(Contract):
    """What a `TransactionalSink` adds. The connector gives the fixture `bus`, and `cannot`."""

    @pytest.fixture
    def bus(self) -> TransactionBus:
        """The connector's own `TransactionBus`, fresh for each test."""
        raise NotImplementedError(f"{type(self).__name__} has no fixture `bus`")

    def test_it_accepts_a_source_of_its_own_bus(self, bus: TransactionBus) -> None:
        """Whether exactly-once is possible can be told before anything runs."""
        assert bus.sink().accepts(bus.source()) is None

    def test_committed_messages_and_positions_are_there_together(self, bus: TransactionBus) -> None:
        """After `commit` the results are visible, and the records never come again."""
        bus.feed(_inputs(bus, 6))
        sink = bus.sink()
        sink.open()
        with _reader(bus) as reader:
            received = reader.take(6)
            _transact(bus, sink, received)
            _commit(bus, sink, received, reader)
        assert sorted(m.value for m in bus.read_back(6)) == [bus.payload(n) for n in range(6)]
        sink.close()
        with _reader(bus) as reader:
            assert reader.listen(bus.quiet) == []

    def test_an_aborted_transaction_leaves_nothing_behind(self, bus: TransactionBus) -> None:
        """After `abort` no result is visible, the records come again, and the next transaction works."""
        bus.feed(_inputs(bus, 6))
        sink = bus.sink()
        sink.open()
        with _reader(bus) as reader:
            received = reader.take(6)
            _transact(bus, sink, received[:3])
            sink.abort(time.monotonic() + bus.patience)
            reader.source.rewind({one.lane for one in received})
            again = reader.take(6)
            assert sorted(one.message.value for one in again) == sorted(one.message.value for one in received)
            _transact(bus, sink, again)
            _commit(bus, sink, again, reader)
        sink.close()
        assert sorted(m.value for m in bus.read_back(6)) == [bus.payload(n) for n in range(6)]

    def test_a_process_that_dies_in_a_transaction_leaves_nothing_behind(self, bus: TransactionBus) -> None:
        """Closed without commit: the next process delivers everything once."""
        bus.feed(_inputs(bus, 4))
        first = bus.sink()
        first.open()
        with _reader(bus) as reader:
            _transact(bus, first, reader.take(4))
        first.close()
        second = bus.sink()
        second.open()
        with _reader(bus) as reader:
            received = reader.take(4)
            _transact(bus, second, received)
            _commit(bus, second, received, reader)
        second.close()
        assert sorted(m.value for m in bus.read_back(4)) == [bus.payload(n) for n in range(4)]

    @needs("revoke")
    def test_a_process_that_lost_its_lanes_cannot_commit(self, bus: TransactionBus) -> None:
        """A zombie's results must not become visible: the lane's next owner has them to make."""
        bus.feed(_inputs(bus, 2 * bus.partitions))
        sink = bus.sink()
        sink.open()
        with _reader(bus) as reader:
            received = reader.take(2 * bus.partitions)
            _transact(bus, sink, received)
            bus.take_away(reader.source)
            reader.until(lambda r: bool({one.lane for one in received} - r.lanes))
            with pytest.raises(Voided):
                _commit(bus, sink, received, reader)
            sink.abort(time.monotonic() + bus.patience)
        sink.close()
        assert bus.read_back(0) == []


def _inputs(bus: TransactionBus, count: int) -> list[Message]:
    return [Message(bus.payload(n), bus.key(n), partition=n % bus.partitions) for n in range(count)]


def _transact(bus: TransactionBus, sink: TransactionalSink, received: list[Received]) -> None:
    sink.begin(time.monotonic() + bus.patience)
    block = block_of([Message(one.message.value, one.message.key) for one in received])
    assert sink.send(block, time.monotonic() + bus.patience) == {}
    assert sink.barrier(time.monotonic() + bus.patience) == {}


def _reader(bus: TransactionBus) -> Reader:
    return Reader(bus.source(), bus.patience, commits=False)


def _commit(bus: TransactionBus, sink: TransactionalSink, received: list[Received], reader: Reader) -> None:
    token = reader.source.transaction_token()
    assert token is not None
    sink.commit(_marks(received), token, time.monotonic() + bus.patience)


def _marks(received: list[Received]) -> dict[Lane, int]:
    return {one.lane: one.position + 1 for one in received}
