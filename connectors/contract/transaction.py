"""The contract of a transactional sink: messages and acknowledged positions become visible as one, or not at all."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress

import pytest

from connectors.contract.bus import SinkBus, SourceBus
from connectors.contract.capabilities import Contract, needs
from connectors.contract.reader import Reader, Received
from connectors.message import Message, block_of
from connectors.records import Lane
from connectors.sink import TransactionalSink, Voided
from connectors.source import TransactionToken
from pipelines.errors import ConnectorError


class TransactionBus(SourceBus, SinkBus):
    """A source's place, fed by the test, and a transactional sink's place, read back by a reader of committed data."""

    @abstractmethod
    def sink(self) -> TransactionalSink:
        """A transactional sink, not open."""

    @abstractmethod
    def sibling(self, sink: TransactionalSink) -> TransactionalSink:
        """Another sink in the transactions of this one, not open, that writes to `other_topic()`."""

    def refused_late(self) -> Message:
        """A message that the sink accepts and the bus then refuses. Capability `late`."""
        raise NotImplementedError

    def fence(self, sink: TransactionalSink) -> None:
        """Have another process take over the transactional identity of this open sink. Capability `fence`."""
        raise NotImplementedError


class TransactionContract(Contract):
    """Tests for a `TransactionalSink`, in addition to those of a sink.

    The connector provides the fixture `bus`, and `cannot`.
    """

    @pytest.fixture
    def bus(self) -> TransactionBus:
        """The connector's own `TransactionBus`, fresh for each test."""
        raise NotImplementedError(f"{type(self).__name__} has no fixture `bus`")

    def test_a_transactional_sink_accepts_a_source_of_its_own_bus(self, bus: TransactionBus) -> None:
        """Whether exactly-once is possible is known before a service runs."""
        assert bus.sink().accepts(bus.source()) is None

    def test_committed_messages_and_positions_are_there_together(self, bus: TransactionBus) -> None:
        """After `commit` the results are visible, and the records never come again."""
        sink = _opened(bus, 6)
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
        sink = _opened(bus, 6)
        with _reader(bus) as reader:
            received = reader.take(6)
            _transact(bus, sink, received[:3])
            sink.abort(_soon(bus))
            reader.source.rewind({record.lane for record in received})
            again = reader.take(6)
            assert sorted(record.message.value for record in again) == sorted(
                record.message.value for record in received
            )
            _transact(bus, sink, again)
            _commit(bus, sink, again, reader)
        sink.close()
        assert sorted(m.value for m in bus.read_back(6)) == [bus.payload(n) for n in range(6)]

    def test_positions_that_were_added_ahead_are_committed_or_undone_with_the_messages(
        self, bus: TransactionBus
    ) -> None:
        """They may be added while messages are on their way: what counts is how the transaction ends."""
        sink = _opened(bus, 6)
        with _reader(bus) as reader:
            received = reader.take(6)
            for end in ("abort", "commit"):
                token = reader.source.transaction_token()
                assert token is not None
                sink.begin(_soon(bus))
                block = block_of([Message(record.message.value, record.message.key) for record in received])
                assert sink.send(block, _soon(bus)) == {}
                sink.add_positions(_marks(received), token, _soon(bus))
                assert sink.barrier(_soon(bus)) == {}
                if end == "commit":
                    sink.commit(_marks(received), token, _soon(bus))
                else:
                    sink.abort(_soon(bus))
                    reader.source.rewind({record.lane for record in received})
                    received = reader.take(6)
        sink.close()
        assert sorted(m.value for m in bus.read_back(6)) == [bus.payload(n) for n in range(6)]
        with _reader(bus) as reader:
            assert reader.listen(bus.quiet) == []

    def test_a_process_that_dies_in_a_transaction_leaves_nothing_behind(self, bus: TransactionBus) -> None:
        """Closed without commit: the next process delivers all results once."""
        first = _opened(bus, 4)
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
        """A zombie's results must not become visible: the lane's next owner makes them."""
        sink = _opened(bus, 2 * bus.partitions)
        with _reader(bus) as reader:
            received = reader.take(2 * bus.partitions)
            _transact(bus, sink, received)
            bus.take_away(reader.source)
            reader.until(lambda r: bool({record.lane for record in received} - r.lanes))
            with pytest.raises(Voided):
                _commit(bus, sink, received, reader)
            sink.abort(_soon(bus))
        sink.close()
        assert bus.read_back(0) == []

    def test_nothing_is_visible_before_the_commit(self, bus: TransactionBus) -> None:
        """A reader of committed data does not see the messages of an open transaction, even confirmed ones."""
        sink = _opened(bus, 2)
        with _reader(bus) as reader:
            received = reader.take(2)
            _transact(bus, sink, received)
            assert bus.read_back(0) == []
            _commit(bus, sink, received, reader)
        assert len(bus.read_back(2)) == 2
        sink.close()

    def test_transactions_follow_one_another_in_order(self, bus: TransactionBus) -> None:
        """Each transaction begins after the last one has ended."""
        sink = _opened(bus, 6)
        with _reader(bus) as reader:
            sent = []
            for _ in range(3):
                received = reader.take(2)
                _transact(bus, sink, received)
                _commit(bus, sink, received, reader)
                sent += [record.message.value for record in received]
        assert [m.value for m in bus.read_back(6)] == sent
        sink.close()

    def test_positions_can_be_committed_without_messages(self, bus: TransactionBus) -> None:
        """Records without results are finished too; a transaction may also have neither messages nor positions."""
        sink = _opened(bus, 4)
        with _reader(bus) as reader:
            received = reader.take(4)
            for done in ([], received):
                sink.begin(_soon(bus))
                _commit(bus, sink, done, reader)
        sink.close()
        with _reader(bus) as reader:
            assert reader.listen(bus.quiet) == []

    def test_sending_without_a_transaction_is_an_error(self, bus: TransactionBus) -> None:
        """No message may become visible outside of a transaction; the error blames no record."""
        sink = bus.sink()
        sink.open()
        with pytest.raises(ConnectorError):
            sink.send(block_of([Message(bus.payload(0), bus.key(0))]), _soon(bus))
        sink.close()

    def test_a_transaction_does_not_confirm_messages_of_the_aborted_one_before_it(self, bus: TransactionBus) -> None:
        """The next transaction confirms its own messages alone."""
        sink = _opened(bus, 2)
        sink.begin(_soon(bus))
        assert sink.send(block_of([Message(bus.payload(0), bus.key(0))], 70), _soon(bus)) == {}
        _done(bus, lambda: sink.abort(_soon(bus)))
        sink.begin(_soon(bus))
        assert sink.send(block_of([Message(bus.payload(1), bus.key(1))], 80), _soon(bus)) == {}
        assert sink.barrier(_soon(bus)) == {}
        assert {row for rows in sink.confirmed() for row in rows.tolist()} <= {80}
        _done(bus, lambda: sink.abort(_soon(bus)))
        sink.close()
        assert bus.read_back(0) == []

    def test_siblings_send_in_one_transaction(self, bus: TransactionBus) -> None:
        """The messages of all siblings become visible as one, or not at all; any of them may begin and commit."""
        bus.feed(_inputs(bus, 2))
        sink = bus.sink()
        sibling = bus.sibling(sink)
        sink.open()
        sibling.open()
        with _reader(bus) as reader:
            received = reader.take(2)
            assert sibling.accepts(reader.source) is None
            for ends in ("abort", "commit"):
                sink.begin(_soon(bus))
                for member in (sink, sibling):
                    assert member.send(block_of([Message(bus.payload(5), bus.key(5))]), _soon(bus)) == {}
                    assert member.barrier(_soon(bus)) == {}
                if ends == "abort":
                    _done(bus, lambda: sink.abort(_soon(bus)))
                else:
                    _commit(bus, sink, received, reader)
                count = int(ends == "commit")
                assert len(bus.read_back(count)) == count
                assert len(bus.read_back(count, bus.other_topic())) == count
        sibling.close()
        sink.close()

    def test_a_lane_that_is_not_in_the_token_voids_the_transaction(self, bus: TransactionBus) -> None:
        """The bus may not know that the lane has another owner; the token shows it."""
        sink = _opened(bus, 2)
        with _reader(bus) as reader:
            received = reader.take(2)
            token = reader.source.transaction_token()
            assert token is not None
            assert {record.lane for record in received} <= token.lanes
            _transact(bus, sink, received)
            with pytest.raises(Voided):
                sink.commit(_marks(received), TransactionToken(frozenset(), token.member), _soon(bus))
            _done(bus, lambda: sink.abort(_soon(bus)))
            assert bus.read_back(0) == []
            _deliver(bus, sink, reader, received)
        assert len(bus.read_back(2)) == 2
        sink.close()

    def test_a_source_that_commits_nothing_itself_begins_where_a_transaction_committed(
        self, bus: TransactionBus
    ) -> None:
        """Acknowledged is not committed: `rewind`, and another process, begin at the positions on the bus."""
        sink = _opened(bus, 4)
        with _reader(bus) as reader:
            received = reader.take(4)
            reader.acknowledge(received)
            reader.source.rewind({record.lane for record in received})
            again = reader.take(4)
            assert sorted(record.message.value for record in again) == [bus.payload(n) for n in range(4)]
            reader.acknowledge(again)
        with _reader(bus) as reader:
            received = reader.take(4)
            _transact(bus, sink, received)
            _commit(bus, sink, received, reader)
            reader.source.rewind({record.lane for record in received})
            assert reader.listen(bus.quiet) == []
        sink.close()

    @needs("late")
    def test_a_message_that_the_bus_refuses_late_is_named_and_voids_the_transaction(self, bus: TransactionBus) -> None:
        """The barrier names its row as lost for good, and perhaps those of other messages in the same request.

        Its neighbour goes through without it.
        """
        sink = _opened(bus, 1)
        good = Message(bus.payload(0), bus.key(0))
        with _reader(bus) as reader:
            received = reader.take(1)
            sink.begin(_soon(bus))
            assert sink.send(block_of([good, bus.refused_late()], 30), _soon(bus)) == {}
            lost = sink.barrier(_soon(bus))
            assert 31 in lost
            assert not lost[31].retriable
            with pytest.raises(Voided):
                _commit(bus, sink, received, reader)
            _done(bus, lambda: sink.abort(_soon(bus)))
            assert sink.barrier(_soon(bus)) == {}, "a loss is reported twice"
            _deliver(bus, sink, reader, received)
        assert [m.value for m in bus.read_back(1)] == [good.value]
        sink.close()

    @needs("fence")
    @pytest.mark.parametrize("when", ["before it begins", "before it commits"])
    def test_a_sink_whose_identity_was_taken_over_aborts_and_takes_it_back(
        self, bus: TransactionBus, when: str
    ) -> None:
        """Nothing of its transaction is visible; the next one works."""
        sink = _opened(bus, 2)
        with _reader(bus) as reader:
            received = reader.take(2)
            _transact(bus, sink, [])
            _commit(bus, sink, [], reader)
            if when == "before it commits":
                _transact(bus, sink, received)
            bus.fence(sink)
            with pytest.raises(Voided):
                _attempt(bus, sink, reader, received, begin=when == "before it begins")
            _done(bus, lambda: sink.abort(_soon(bus)))
            assert bus.read_back(0) == []
            _deliver(bus, sink, reader, received)
        assert len(bus.read_back(2)) == 2
        sink.close()

    @needs("fence")
    def test_a_sink_that_loses_its_identity_again_and_again_gives_up(self, bus: TransactionBus) -> None:
        """Two processes with one identity would fence each other for ever: the fourth time stops the service."""
        sink = _opened(bus, 1)
        raised: list[ConnectorError] = []
        with _reader(bus) as reader:
            received = reader.take(1)
            for _ in range(4):
                bus.fence(sink)
                # The bus need not know of an empty transaction, so it needs a message.
                with pytest.raises(Voided):
                    _attempt(bus, sink, reader, received)
                try:
                    _done(bus, lambda: sink.abort(_soon(bus)))
                except ConnectorError as error:
                    raised.append(error)
        assert len(raised) == 1
        assert not raised[0].retriable
        assert not isinstance(raised[0], Voided)
        sink.close()

    @needs("cut")
    def test_a_commit_whose_answer_does_not_come_is_resumed(self, bus: TransactionBus) -> None:
        """An unknown outcome is retriable; the repeated call ends as the first one would have, and commits once."""
        sink = _opened(bus, 2)
        with _reader(bus) as reader:
            received = reader.take(2)
            token = reader.source.transaction_token()
            assert token is not None
            _transact(bus, sink, received)
            bus.cut()
            with pytest.raises(ConnectorError) as raised:
                sink.commit(_marks(received), token, time.monotonic() + 0.5)
            assert raised.value.retriable
            bus.mend()
            _done(bus, lambda: sink.commit(_marks(received), token, _soon(bus)))
        sink.close()
        assert len(bus.read_back(2)) == 2
        with _reader(bus) as reader:
            assert reader.listen(bus.quiet) == []

    @needs("cut")
    @pytest.mark.parametrize("cut_at", ["begin", "send", "commit", "abort"])
    def test_every_result_is_there_once_wherever_the_peer_is_cut_off(self, bus: TransactionBus, cut_at: str) -> None:
        """A caller that handles the four endings of `TransactionalSink` loses and doubles no result."""
        sink = _opened(bus, 4)
        with _reader(bus) as reader:
            received = reader.take(4)
            if cut_at == "abort":
                _transact(bus, sink, received)
                bus.cut()
                with suppress(ConnectorError):
                    sink.abort(time.monotonic() + 0.5)
                bus.mend()
                _done(bus, lambda: sink.abort(_soon(bus)))
            _deliver(bus, sink, reader, received, cut_at)
        assert sorted(m.value for m in bus.read_back(4)) == [bus.payload(n) for n in range(4)]
        sink.close()
        with _reader(bus) as reader:
            assert reader.listen(bus.quiet) == []


def _opened(bus: TransactionBus, count: int) -> TransactionalSink:
    """An open sink, and `count` records for the source to deliver."""
    bus.feed(_inputs(bus, count))
    sink = bus.sink()
    sink.open()
    return sink


def _soon(bus: TransactionBus) -> float:
    return time.monotonic() + bus.patience


def _done(bus: TransactionBus, call: Callable[[], None]) -> None:
    """Call until it ends in another way than "not known yet"."""
    deadline = _soon(bus)
    while True:
        try:
            return call()
        except ConnectorError as error:
            if not error.retriable or isinstance(error, Voided) or time.monotonic() >= deadline:
                raise
            time.sleep(0.05)


def _deliver(
    bus: TransactionBus, sink: TransactionalSink, reader: Reader, received: list[Received], cut_at: str = ""
) -> None:
    """Send these records in transactions, as the agent does, until one is committed; the peer is cut off once."""
    deadline = _soon(bus)
    while time.monotonic() < deadline:
        try:
            return _attempt(bus, sink, reader, received, cut_at)
        except Voided:
            cut_at = ""
            _done(bus, lambda: sink.abort(_soon(bus)))
            lanes = {record.lane for record in received}
            if reader.lanes >= lanes:
                reader.source.rewind(lanes)
            received = reader.take(len(received))
    raise AssertionError(f"no transaction was committed within {bus.patience} s")


def _attempt(
    bus: TransactionBus,
    sink: TransactionalSink,
    reader: Reader,
    received: list[Received],
    cut_at: str = "",
    *,
    begin: bool = True,
) -> None:
    """One transaction with these records, from its beginning, or only its commit; the peer is cut off for a while."""

    def cut(where: str) -> None:
        if where == cut_at:
            bus.cut()
            threading.Timer(0.5, bus.mend).start()

    if begin:
        cut("begin")
        _done(bus, lambda: sink.begin(time.monotonic() + 1))
        cut("send")
        block = block_of([Message(record.message.value, record.message.key) for record in received])
        assert sink.send(block, _soon(bus)) == {}
        if sink.barrier(_soon(bus)):
            raise Voided("messages were lost")
    token = reader.source.transaction_token()
    assert token is not None
    cut("commit")
    _done(bus, lambda: sink.commit(_marks(received), token, time.monotonic() + 1))


def _inputs(bus: TransactionBus, count: int) -> list[Message]:
    return [Message(bus.payload(n), bus.key(n), partition=n % bus.partitions) for n in range(count)]


def _transact(bus: TransactionBus, sink: TransactionalSink, received: list[Received]) -> None:
    sink.begin(_soon(bus))
    block = block_of([Message(record.message.value, record.message.key) for record in received])
    assert sink.send(block, _soon(bus)) == {}
    assert sink.barrier(_soon(bus)) == {}


def _reader(bus: TransactionBus) -> Reader:
    return Reader(bus.source(), bus.patience, commits=False)


def _commit(bus: TransactionBus, sink: TransactionalSink, received: list[Received], reader: Reader) -> None:
    token = reader.source.transaction_token()
    assert token is not None
    sink.commit(_marks(received), token, _soon(bus))


def _marks(received: list[Received]) -> dict[Lane, int]:
    return {record.lane: record.position + 1 for record in received}
