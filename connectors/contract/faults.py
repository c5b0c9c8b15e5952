"""The contract of a sink, second half: a peer that is away or slow, or that loses or refuses messages."""

from __future__ import annotations

import time

import pytest

from connectors.contract.bus import SinkBus
from connectors.contract.capabilities import Contract, needs
from connectors.message import Message, block_of
from pipelines.errors import ConnectorError


class FaultContract(Contract):
    """Refusals, losses, back-pressure, deadlines. Part of `SinkContract`."""

    @needs("read", "limit")
    def test_a_message_that_cannot_be_taken_is_refused_alone(self, bus: SinkBus) -> None:
        """A message that is refused for good is named by its index; its neighbours arrive.

        A sink that finds out later names its row at the barrier.
        """
        sink = bus.sink()
        sink.open()
        good = [Message(bus.payload(n), bus.key(n)) for n in range(2)]
        block = block_of([good[0], bus.too_large(), good[1]], 40)
        at_once = sink.send(block, time.monotonic() + bus.patience)
        refused = {int(block.rows[index]): error for index, error in at_once.items()}
        refused |= sink.barrier(time.monotonic() + bus.patience)
        sink.close()
        assert list(refused) == [41]
        assert isinstance(refused[41], ConnectorError)
        assert not refused[41].retriable
        assert [m.value for m in bus.read_back(2)] == [m.value for m in good]

    @needs("limit", "confirmed")
    def test_a_refused_row_is_not_confirmed(self, bus: SinkBus) -> None:
        """A refused message must not count as done."""
        sink = bus.sink()
        sink.open()
        block = block_of([bus.too_large()], 3)
        at_once = sink.send(block, time.monotonic() + bus.patience)
        refused = {int(block.rows[index]): error for index, error in at_once.items()}
        refused |= sink.barrier(time.monotonic() + bus.patience)
        assert list(refused) == [3]
        assert [rows.tolist() for rows in sink.confirmed() if len(rows)] == []
        sink.close()

    @needs("read", "lose")
    def test_the_next_barrier_names_the_rows_of_lost_messages_once(self, bus: SinkBus) -> None:
        """Lossy: the next barrier names the rows of messages that were accepted and then lost; the others arrive."""
        sink = bus.sink()
        sink.open()
        for number in (3, 7):
            bus.lose(sink, number)
        block = block_of([Message(bus.payload(n), bus.key(n)) for n in range(10)], 20)
        assert sink.send(block, time.monotonic() + bus.patience) == {}
        assert set(sink.barrier(time.monotonic() + bus.patience)) == {23, 27}
        assert not {23, 27} & {row for rows in sink.confirmed() for row in rows.tolist()}
        assert sink.barrier(time.monotonic() + bus.patience) == {}, "a loss is reported twice"
        sink.close()
        assert [m.value for m in bus.read_back(8)] == [bus.payload(n) for n in range(10) if n not in (3, 7)]

    @needs("read", "vanish")
    def test_a_place_that_is_gone_is_no_fault_of_the_messages(self, bus: SinkBus) -> None:
        """A topic or file is deleted: no message is refused or lost for good because of that, none counts as done.

        The sink may wait for it, put it back itself, or be broken for good.
        """
        sink = bus.sink()
        sink.open()
        assert sink.send(block_of([Message(bus.payload(0), bus.key(0))]), time.monotonic() + bus.patience) == {}
        assert sink.barrier(time.monotonic() + bus.patience) == {}
        sink.confirmed()
        bus.vanish()
        sent = [Message(bus.payload(n), bus.key(n)) for n in range(1, 6)]
        blamed: list[ConnectorError] = []
        try:
            blamed += sink.send(block_of(sent, 1), time.monotonic() + bus.patience / 4).values()
            blamed += sink.barrier(time.monotonic() + bus.patience / 4).values()
        except ConnectorError:
            # The outcome is unknown, or the sink is broken: the records come again.
            pass
        assert all(error.retriable for error in blamed), blamed
        done = {row for rows in sink.confirmed() for row in rows.tolist()}
        sink.close()
        bus.restore()
        assert {bus.payload(row) for row in done} <= {m.value for m in bus.read_back(len(done))}
        again = bus.sink()
        again.open()
        assert again.send(block_of(sent, 1), time.monotonic() + bus.patience) == {}
        assert again.barrier(time.monotonic() + bus.patience) == {}
        again.close()
        assert {m.value for m in bus.read_back(5)} >= {m.value for m in sent}

    @needs("read", "cut")
    def test_an_absent_peer_is_no_error_when_opening(self, bus: SinkBus) -> None:
        """A service starts before its broker, and says that the broker is away."""
        bus.cut()
        sink = bus.sink()
        sink.open()
        block = block_of([Message(bus.payload(0), bus.key(0))])
        assert sink.send(block, time.monotonic() + bus.patience) == {}
        bus.mend()
        assert sink.barrier(time.monotonic() + bus.patience) == {}
        sink.close()
        assert [m.value for m in bus.read_back(1)] == [bus.payload(0)]

    @needs("cut", "waits")
    def test_a_barrier_that_cannot_be_passed_raises_at_its_deadline(self, bus: SinkBus) -> None:
        """An unknown outcome is a retriable error, so no record is acknowledged."""
        sink = bus.sink()
        sink.open()
        bus.cut()
        sink.send(block_of([Message(bus.payload(0), bus.key(0))]), time.monotonic() + 0.3)
        began = time.monotonic()
        with pytest.raises(ConnectorError) as raised:
            sink.barrier(time.monotonic() + 0.3)
        assert raised.value.retriable
        assert time.monotonic() - began < bus.patience / 2
        bus.mend()
        sink.close()

    @needs("read", "cut")
    def test_a_full_sink_holds_back_and_then_refuses_to_be_tried_again(self, bus: SinkBus) -> None:
        """Slow output: memory is bounded, the wait is bounded, and refused messages are accepted later, in order."""
        size = 20_000
        count = 2 * bus.in_flight_at_most // size + 10
        sink = bus.sink()
        sink.open()
        bus.cut()
        waiting = [Message(bus.payload(n, size), bus.key(n)) for n in range(count)]
        began = time.monotonic()
        refused = sink.send(block_of(waiting), time.monotonic() + 1)
        assert time.monotonic() - began < bus.patience / 2
        accepted = count - len(refused)
        assert accepted * size <= bus.in_flight_at_most + size
        assert sorted(refused) == list(range(accepted, count)), "the refused messages are not the end of the block"
        assert all(error.retriable for error in refused.values())
        bus.mend()
        again = block_of(waiting[accepted:], accepted)
        assert sink.send(again, time.monotonic() + bus.patience) == {}
        assert sink.barrier(time.monotonic() + bus.patience) == {}
        sink.close()
        assert [m.value for m in bus.read_back(count)] == [m.value for m in waiting]

    @needs("cut")
    def test_closing_does_not_wait_for_unconfirmed_messages(self, bus: SinkBus) -> None:
        """A service can stop while its peer is away."""
        sink = bus.sink()
        sink.open()
        bus.cut()
        sink.send(block_of([Message(bus.payload(0), bus.key(0))]), time.monotonic() + 0.3)
        began = time.monotonic()
        sink.close()
        assert time.monotonic() - began < bus.patience / 2
        bus.mend()

    @needs("cut", "waits")
    def test_a_sink_says_why_its_peer_is_away_until_it_is_back(self, bus: SinkBus) -> None:
        """`down` returns the reason, for logs and metrics, and `None` when all is well."""
        sink = bus.sink()
        sink.open()
        assert sink.down() is None
        bus.cut()
        sink.send(block_of([Message(bus.payload(0), bus.key(0))]), time.monotonic() + 0.3)
        deadline = time.monotonic() + bus.patience
        while sink.down() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert sink.down()
        bus.mend()
        assert sink.barrier(time.monotonic() + bus.patience) == {}
        while sink.down() is not None and time.monotonic() < deadline:
            time.sleep(0.05)
        assert sink.down() is None
        sink.close()
