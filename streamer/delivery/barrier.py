"""`Barrier`: rows are complete when the sinks have confirmed their messages, each sink for itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain

from connectors.records import Ints, Lane
from connectors.sink import Lost, Voided
from pipelines.data.result import Result
from pipelines.errors import ConnectorError
from streamer.agent.decodedbatch import DecodedBatch
from streamer.delivery.confirming import Confirming
from streamer.observe.metrics import RunMeters
from streamer.routing.sinkroute import SinkRoute


class Barrier(Confirming):
    """Messages are sent as they come; `wait` is a barrier in every sink."""

    def __init__(self, sinks: Sequence[SinkRoute], meters: RunMeters) -> None:
        self.outcomes = meters.outcomes
        self._sinks = sinks
        self._unconfirmed = False
        self._lost: list[tuple[SinkRoute, Lost]] = []

    @property
    def unconfirmed(self) -> bool:
        """Whether messages were sent since the last successful `wait`."""
        return self._unconfirmed

    def run_next(self, seconds: float) -> None:
        """Not needed here."""

    def admit(
        self, decoded: DecodedBatch, result: Result, release: Callable[[], None]
    ) -> Iterable[tuple[DecodedBatch, Result]]:
        """The whole batch, at once."""
        return ((decoded, result),)

    def sent(self) -> None:
        """Note that messages were sent, for `wait`."""
        self._unconfirmed = True

    def voided(self, error: Voided) -> None:
        """There is no transaction that could be aborted: the sink is broken."""
        raise error

    def refusals(self, decoded: DecodedBatch, row: int) -> tuple[str, ...]:
        """None: dead letters that are lost are sent again at once."""
        return ()

    def push(self) -> None:
        """Have the sinks send the messages that wait to be sent together."""
        if self._unconfirmed:
            for route in self._sinks:
                route.sink.push()

    def confirmed(self) -> list[Ints]:
        """The rows whose messages the sinks have confirmed."""
        return list(chain.from_iterable(route.sink.confirmed() for route in self._sinks))

    def hurry(self) -> None:
        """Does nothing: no sent message waits for a dead letter."""

    def wait(self, deadline: float, *, answers: bool) -> list[tuple[SinkRoute, Lost]]:
        """A barrier in every sink."""
        if not self._unconfirmed:
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
        self._unconfirmed = untaken
        losses, self._lost = self._lost, []
        return losses

    def keeps_up(self, seconds: float) -> bool:
        """Whether sinks wait for confirmations, and none longer than `seconds`. Not if none waits: then `wait` returns
        at once, and marks all messages as confirmed."""
        return 0 < max((route.sink.behind() for route in self._sinks if not route.answers), default=0.0) < seconds

    def lanes_ended(self, lanes: Collection[Lane]) -> None:
        """Their messages stay sent."""

    def end(self, deadline: float) -> None:
        """Wait for the confirmation of all messages that were sent."""
        self.wait(deadline, answers=True)

    def close(self) -> None:
        """Does nothing: a barrier holds no resources."""
