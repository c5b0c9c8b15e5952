"""`Confirming`: how a service learns that its messages are confirmed, and so which rows are complete.

There are two ways: `Barrier` waits until the sinks have confirmed all messages; `Transactions` commits them together
with the positions of their records.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable

from connectors.records import Ints, Lane
from connectors.sink import Lost, Voided
from pipelines.data.result import Result
from streamer.agent.decodedbatch import DecodedBatch
from streamer.routing.sinkroute import SinkRoute


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

    @abstractmethod
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

    @abstractmethod
    def sent(self) -> None:
        """Messages were given to a sink."""

    @abstractmethod
    def voided(self, error: Voided) -> None:
        """A sink raised this while messages were sent: the part that was admitted last is not sent."""

    @abstractmethod
    def refusals(self, decoded: DecodedBatch, row: int) -> tuple[str, ...]:
        """Why earlier dead letters of this row were refused, each time after they had been accepted."""

    @abstractmethod
    def push(self) -> None:
        """No more messages are sent for now: send those that wait for others."""

    @abstractmethod
    def confirmed(self) -> list[Ints]:
        """Row numbers that are known to be confirmed since the last call, once for each message. Does not wait."""

    @abstractmethod
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

    @abstractmethod
    def lanes_ended(self, lanes: Collection[Lane]) -> None:
        """These lanes have ended, in the ledger already."""

    @abstractmethod
    def end(self, deadline: float) -> None:
        """The service has failed: wait for confirmations, or abort the transaction, by `deadline`. Raises
        `ConnectorError`."""

    @abstractmethod
    def close(self) -> None:
        """Release resources; called last. Waits for a few seconds at most."""
