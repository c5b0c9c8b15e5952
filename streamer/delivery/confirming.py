"""`Confirming`: how a service learns that its messages are confirmed, and so which rows are complete.

There are two ways: `Barrier` waits until the sinks have confirmed all messages, each sink for itself; `Transactions`
commits them together with the positions of their records.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Protocol

from connectors.records import Ints, Lane
from connectors.sink import Lost, Voided
from connectors.source import TransactionToken
from pipelines.data.result import Result
from pipelines.errors import ConnectorError
from streamer.agent.decodedbatch import DecodedBatch
from streamer.observe.metrics import RunMeters
from streamer.routing.sinkroute import SinkRoute


class Upstream(Protocol):
    """The sources, as delivery reaches them from the run thread."""

    def rewind(self, lanes: Iterable[Lane], marks: Mapping[Lane, int]) -> None:
        """Have these lanes delivered again, from the positions that are given with them."""

    def token(self) -> TransactionToken | None:
        """The newest token of the source, which commits its positions in transactions; `None` before the first."""

    def serve(self) -> None:
        """Handle the messages of the intake threads: called after `token`, it reports every lane that ended before the
        token was taken."""

    def patience(self) -> float:
        """Seconds left to wait for a sink that accepts no messages."""


class Confirming(ABC):
    """Owned by the run thread. A batch passes it on its way to the sinks: `admit`, then its messages are sent."""

    outcomes: Counter[tuple[str, str]]
    """Counts of rows by source and outcome, which the metrics take over once the rows are confirmed for good."""
    postponed: bool = False
    """Whether dead letters of rows that were run are held back, so that their transaction may not be committed."""

    @property
    def waiting(self) -> tuple[float, str] | None:
        """Since when, on `time.monotonic`, it has waited for one outcome without which nothing goes on, and for what;
        `None` if it does not. From any thread."""
        return None

    @property
    @abstractmethod
    def unconfirmed(self) -> bool:
        """Whether there are sent messages that are neither confirmed nor lost yet."""

    def keep_together(self, together: Callable[[Iterable[Lane]], set[Lane]]) -> None:
        """`together` gives the lanes that have to be delivered again if these are, themselves among them."""

    def apart(self, decoded: DecodedBatch) -> list[DecodedBatch]:
        """The batch in the parts in which it has to be run, one after the other, as they may not be sent together."""
        return [decoded]

    def make_way(self, decoded: DecodedBatch | None, release: Callable[[], None]) -> None:
        """Such a part is run next, or what is due by time (`None`): if it may not be sent together with what was sent
        before, wait until that is confirmed. `release` as for `admit`, and the same errors."""

    def run_next(self, seconds: float) -> None:
        """A batch is run next, which will take about so many seconds."""

    @abstractmethod
    def admit(
        self, decoded: DecodedBatch, result: Result, release: Callable[[], None]
    ) -> Iterable[tuple[DecodedBatch, Result]]:
        """The parts of a batch to send now, one after the other; the caller takes the next part when the one before was
        sent.

        May wait. `release` sends the dead letters that are held back, so that none are `postponed`. Raises
        `ServiceStopped` when no time is left for that.
        """

    def sent(self) -> None:
        """Messages were given to a sink."""

    @abstractmethod
    def voided(self, error: Voided) -> None:
        """A sink raised this while messages were sent: the part that was admitted last is not sent."""

    def refusals(self, decoded: DecodedBatch, row: int) -> tuple[str, ...]:
        """Why earlier dead letters of this row were refused, each time after they had been accepted."""
        return ()

    @abstractmethod
    def push(self) -> None:
        """No more messages are sent for now: send those that wait for others."""

    @abstractmethod
    def confirmed(self) -> list[Ints]:
        """Row numbers that are known to be confirmed since the last call, once for each message. Does not wait."""

    def hurry(self) -> None:
        """Lanes are taken away, or the service ends: do not wait any longer for dead letters that are held back.

        A transaction that such dead letters belong to is aborted; its records come again, or go to another consumer.
        """

    @abstractmethod
    def wait(self, deadline: float, *, answers: bool) -> list[tuple[SinkRoute, Lost]]:
        """Wait until all messages sent are confirmed or known to be lost; the lost ones, by sink and row.

        Those of sinks that answer are waited for only with `answers`; else they may be `unconfirmed` when it returns.

        Does not wait for dead letters that are `postponed`. Raises `ConnectorError` (retriable) if the outcome of some
        is unknown at `deadline`, on `time.monotonic`.
        """

    @abstractmethod
    def keeps_up(self, seconds: float) -> bool:
        """Whether all that was sent longer than so many seconds ago is confirmed without `wait`."""

    def lanes_ended(self, lanes: Collection[Lane]) -> None:
        """These lanes have ended, in the ledger already."""

    @abstractmethod
    def end(self, deadline: float) -> None:
        """The service has failed: wait for confirmations, or abort the transaction, by `deadline`. Raises
        `ConnectorError`."""

    def close(self) -> None:
        """Release resources; called last. Waits for a few seconds at most."""


class Barrier(Confirming):
    """Messages are sent as they come; `wait` is a barrier in every sink."""

    unconfirmed = False
    """Whether messages were sent since the last successful `wait`."""

    def __init__(self, sinks: Sequence[SinkRoute], meters: RunMeters) -> None:
        self.outcomes = meters.outcomes
        self._sinks = sinks
        self._lost: list[tuple[SinkRoute, Lost]] = []

    def admit(
        self, decoded: DecodedBatch, result: Result, release: Callable[[], None]
    ) -> Iterable[tuple[DecodedBatch, Result]]:
        """The whole batch, at once."""
        return ((decoded, result),)

    def sent(self) -> None:
        """Note that messages were sent, for `wait`."""
        self.unconfirmed = True

    def voided(self, error: Voided) -> None:
        """There is no transaction that could be aborted: the sink is broken."""
        raise error

    def push(self) -> None:
        """Have the sinks send the messages that wait to be sent together."""
        if self.unconfirmed:
            for route in self._sinks:
                route.sink.push()

    def confirmed(self) -> list[Ints]:
        """The rows whose messages the sinks have confirmed."""
        return list(chain.from_iterable(route.sink.confirmed() for route in self._sinks))

    def wait(self, deadline: float, *, answers: bool) -> list[tuple[SinkRoute, Lost]]:
        """A barrier in every sink."""
        if not self.unconfirmed:
            return []
        trouble: ConnectorError | None = None
        untaken = False
        for route in self._sinks:
            waits = answers or not route.answers
            try:
                lost = route.sink.barrier(deadline if waits else min(deadline, time.monotonic()))
            except ConnectorError as error:
                if error.retriable and not waits:
                    untaken = True
                    continue
                # The other sinks are queried all the same: each reports a confirmation or a loss only once.
                if trouble is None or not error.retriable:
                    trouble = error
                continue
            if lost:
                self._lost.append((route, lost))
        if trouble is not None:
            raise trouble
        self.unconfirmed = untaken
        losses, self._lost = self._lost, []
        return losses

    def keeps_up(self, seconds: float) -> bool:
        """Whether sinks wait for confirmations, and none longer than `seconds`. Not if none waits: then `wait` returns
        at once, and marks all messages as confirmed."""
        return 0 < max((route.sink.behind() for route in self._sinks if not route.answers), default=0.0) < seconds

    def end(self, deadline: float) -> None:
        """Wait for the confirmation of all messages that were sent."""
        self.wait(deadline, answers=True)
