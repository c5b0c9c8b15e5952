"""Making the messages of a sink and sending them, until it has accepted or refused all of them."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from connectors.records import Messages
from pipelines.errors import ConnectorError
from streamer.delivery.failures import ServiceStopped
from streamer.routing.sinkroute import Failed, Selected, SinkRoute

SEND_TRY = 1.0
"""Seconds of one attempt to send to a full sink; with the pause after it, the longest time until a stop is noticed."""
LEAST_TRY = 0.1
"""Seconds of one attempt when there is no time left: enough for a sink that is not full."""
LONGEST_PAUSE = 1.0
"""Seconds between two attempts at most."""


def messages_of(
    route: SinkRoute, selected: Selected, patience: Callable[[], float], log: Any
) -> tuple[Messages, Failed]:
    """The messages of a route, as `SinkRoute.messages`, waiting while its codec lacks, for example, the schema.

    Meanwhile the route is down. `patience` is as in `send_all`. Raises `ServiceStopped` when no time is left,
    `ConnectorError` for an error that waiting cannot mend.
    """
    tries = 0
    while True:
        try:
            messages = route.messages(selected)
        except ConnectorError as error:
            if not error.retriable:
                raise
            left = patience()
            if left <= 0:
                raise ServiceStopped(f"the sink {route.name} cannot write its results: {error}") from error
            route.blocked = str(error)
            if tries == 0:
                log.warning("results cannot be written yet, waiting", sink=route.name, reason=route.blocked)
            time.sleep(min(pause(tries), left))
            tries += 1
        else:
            route.blocked = None
            return messages


def send_all(
    route: SinkRoute, messages: Messages, patience: Callable[[], float], log: Any
) -> dict[int, ConnectorError]:
    """Send all messages, waiting while the sink is full. Returns the errors of those refused for good, by index.

    While the sink accepts none of them the route is down, even if the sink itself does not say so. `patience` gives the
    seconds that this may take from now on. Raises `ServiceStopped` when there are none left.
    """
    final: dict[int, ConnectorError] = {}
    if not len(messages):
        return final
    refused = route.sink.send(messages, time.monotonic() + min(SEND_TRY, max(patience(), LEAST_TRY)))
    index = np.arange(len(messages) if refused else 0)
    tries = 0
    while refused:
        final.update((int(index[at]), error) for at, error in refused.items() if not error.retriable)
        again = np.array(sorted(at for at, error in refused.items() if error.retriable), np.int64)
        if not len(again):
            break
        left = patience()
        reason = str(refused[int(again[0])])
        if left <= 0:
            raise ServiceStopped(f"the sink {route.name} accepts no messages: {reason}")
        # A sink that takes some of them is slow, but works.
        route.blocked = reason if len(again) == len(messages) else None
        if tries == 0:
            log.warning("the sink accepts no messages, waiting", sink=route.name, messages=len(again), reason=reason)
        time.sleep(min(pause(tries), left))
        tries += 1
        messages, index = messages.take(again), index[again]
        refused = route.sink.send(messages, time.monotonic() + min(SEND_TRY, max(patience(), LEAST_TRY)))
    route.blocked = None
    return final


def send_some(route: SinkRoute, messages: Messages) -> tuple[dict[int, ConnectorError], dict[int, ConnectorError]]:
    """Send the messages that the sink accepts without waiting.

    Returns the errors of the messages that it refuses for good, and of those that it has no room for, by index.
    """
    final: dict[int, ConnectorError] = {}
    full: dict[int, ConnectorError] = {}
    if len(messages):
        for at, error in route.sink.send(messages, time.monotonic()).items():
            (full if error.retriable else final)[at] = error
    return final, full


def pause(tries: int) -> float:
    """Seconds to wait after `tries` attempts that failed: doubled each time, with jitter."""
    # The exponent is bounded, as an outage of hours would overflow the power.
    return random.uniform(0.5, 1.0) * min(0.2 * 2.0 ** min(tries, 10), LONGEST_PAUSE)  # noqa: S311
