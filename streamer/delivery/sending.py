"""`Sender`: makes the messages of a sink and sends them, until it has accepted or refused all of them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from connectors.records import Messages
from pipelines.errors import ConnectorError
from streamer.delivery.confirming import Confirming
from streamer.delivery.failures import ServiceStopped
from streamer.delivery.ledger import Ledger
from streamer.observe.metrics import RunMeters
from streamer.routing.sinkroute import Failed, Selected, SinkRoute

SEND_TRY = 1.0
"""Seconds of one attempt to send to a full sink; with the pause after it, the longest time until a stop is noticed."""
LEAST_TRY = 0.1
"""Seconds of one attempt when there is no time left: enough for a sink that is not full."""
LONGEST_PAUSE = 1.0
"""Seconds between two attempts at most."""


class Sender:
    """Writes the messages of sinks and sends them. Waits for a sink that cannot at present, or drops its messages.

    While the sink accepts none of them the route is down, even if the sink itself does not say so. Owned by the run
    thread.
    """

    def __init__(
        self, ledger: Ledger, confirming: Confirming, patience: Callable[[], float], meters: RunMeters, log: Any
    ) -> None:
        """`patience` gives the seconds that waiting may take from now on."""
        self._ledger = ledger
        self._confirming = confirming
        self._patience = patience
        self._meters = meters
        self._log = log
        self._dropping: dict[str, int] = {}
        """Messages dropped since a sink began to be full, by its name."""

    def written(self, route: SinkRoute, selected: Selected) -> tuple[Messages, Failed]:
        """The messages of a route, as `SinkRoute.messages`, waiting while its codec lacks, for example, the schema.

        Raises `ServiceStopped` when no time is left, `ConnectorError` for an error that waiting cannot mend.
        """
        tries = 0
        while True:
            try:
                messages = route.messages(selected)
            except ConnectorError as error:
                if not error.retriable:
                    raise
                left = self._patience()
                if left <= 0:
                    raise ServiceStopped(f"the sink {route.name} cannot write its results: {error}") from error
                route.blocked = str(error)
                if tries == 0:
                    self._log.warning("results cannot be written yet, waiting", sink=route.name, reason=route.blocked)
                time.sleep(min(pause(tries), left))
                tries += 1
            else:
                route.blocked = None
                return messages

    def send(self, route: SinkRoute, messages: Messages) -> dict[int, ConnectorError]:
        """Send all messages, except those that a sink which `drops` has no room for: their rows no longer wait for
        them.

        Returns the errors of messages that are refused for good, by index. Raises `ServiceStopped` when no time is left
        to wait for a full sink.
        """
        if not len(messages):
            return {}
        self._confirming.sent()
        return self._sent_or_dropped(route, messages) if route.drops else self._sent(route, messages)

    def _sent(self, route: SinkRoute, messages: Messages) -> dict[int, ConnectorError]:
        final: dict[int, ConnectorError] = {}
        refused = route.sink.send(messages, time.monotonic() + min(SEND_TRY, max(self._patience(), LEAST_TRY)))
        index = np.arange(len(messages) if refused else 0)
        tries = 0
        while refused:
            final.update((int(index[at]), error) for at, error in refused.items() if not error.retriable)
            again = np.array(sorted(at for at, error in refused.items() if error.retriable), np.int64)
            if not len(again):
                break
            left = self._patience()
            reason = str(refused[int(again[0])])
            if left <= 0:
                raise ServiceStopped(f"the sink {route.name} accepts no messages: {reason}")
            # A sink that takes some of them is slow, but works.
            route.blocked = reason if len(again) == len(messages) else None
            if tries == 0:
                self._log.warning(
                    "the sink accepts no messages, waiting", sink=route.name, messages=len(again), reason=reason
                )
            time.sleep(min(pause(tries), left))
            tries += 1
            messages, index = messages.take(again), index[again]
            refused = route.sink.send(messages, time.monotonic() + min(SEND_TRY, max(self._patience(), LEAST_TRY)))
        route.blocked = None
        return final

    def _sent_or_dropped(self, route: SinkRoute, messages: Messages) -> dict[int, ConnectorError]:
        """Send the messages that the sink accepts without waiting, and drop the others."""
        errors = route.sink.send(messages, time.monotonic())
        full = {at: error for at, error in errors.items() if error.retriable}
        refused = {at: error for at, error in errors.items() if not error.retriable}
        if not full:
            if route.name in self._dropping and len(messages) > len(refused):
                dropped = self._dropping.pop(route.name)
                self._log.info("the sink accepts messages again", sink=route.name, dropped=dropped)
            return refused
        if route.name not in self._dropping:
            reason = str(next(iter(full.values())))
            self._log.warning("the sink accepts no messages, they are dropped", sink=route.name, reason=reason)
        self._dropping[route.name] = self._dropping.get(route.name, 0) + len(full)
        self._meters.dropped[route.name] += len(full)
        self._ledger.confirm(np.concatenate([messages.parents(at) for at in full]))
        return refused


def pause(tries: int) -> float:
    """Seconds to wait after `tries` attempts that failed: doubled each time, with jitter."""
    # The exponent is bounded, as an outage of hours would overflow the power.
    return random.uniform(0.5, 1.0) * min(0.2 * 2.0 ** min(tries, 10), LONGEST_PAUSE)  # noqa: S311
