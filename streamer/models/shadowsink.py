"""`ShadowSink`: sends the results of a shadow to a sink of its own, at most once, and waits for nothing for long."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

from connectors.records import Messages
from pipelines.data.batch import Batch
from pipelines.errors import ConnectorError
from pipelines.executors.keep import Keep, kept
from pipelines.observe.meters import Reading
from streamer.routing.messageblocks import without
from streamer.routing.sinkroute import SinkRoute, select_all

SETTLE: Final = 1.0
"""Seconds after which messages that were sent are confirmed, and between two looks whether a sink that is held up has
confirmed what it has."""
SEND_WAIT: Final = 1.0
"""Seconds that a sink which is full is waited for."""
CONFIRM_WAIT: Final = 2.0
"""Seconds that its confirmations are waited for."""
_OUTCOMES: Final = ("sent", "failed", "unsent")


class ShadowSink:
    """Sends results, and counts those that the sink has confirmed.

    A sink that is full, or confirms nothing in time, is held up: from then on results are thrown away and counted until
    it has confirmed what it has, so that nothing piles up. One that is broken for good gets no more. Used by the thread
    of the shadow, but for `open` before and `document` and `readings` from any thread.
    """

    def __init__(self, route: SinkRoute, keep: Keep | None, log: Any) -> None:
        """`keep` says which values of the records are put back into the results."""
        self.counts = dict.fromkeys(_OUTCOMES, 0)
        """Results by outcome."""
        self._route = route
        self._keep = keep
        self._log = log
        self._logged = False
        self._unconfirmed = 0
        self._settle_at: float | None = None
        self._held_up = False
        self._broken: str | None = None

    def open(self) -> None:
        """Connect. Raises `ConnectorError` as the sinks of the service do."""
        self._route.sink.open()

    def send(self, batch: Batch, results: Batch, version: str) -> None:
        """Send the results that this version made of a batch."""
        if self._broken is not None or self._held_up:
            self.counts["unsent"] += results.size
            return
        route = self._route
        route.made_by.label = version
        try:
            if self._keep:
                results = kept(results, batch, self._keep)
            (selected,), unselected = select_all([route.selection], results)
            messages, unwritten = route.messages(selected)
            if unwritten:
                messages = without(messages, unwritten)
            self._count_failed({**unselected, **unwritten})
            if len(messages):
                self._send(messages)
        except ConnectorError as error:
            self.counts["unsent"] += results.size
            self._trouble(error)
        except Exception as error:  # noqa: BLE001 - whatever it is, the service goes on
            self.counts["failed"] += results.size
            self._log_once(error)

    @property
    def left(self) -> float | None:
        """In how many seconds `settle` is to be called; `None`: there is nothing to confirm."""
        return None if self._settle_at is None else max(0.0, self._settle_at - time.monotonic())

    def settle(self) -> None:
        """Have what was sent confirmed, as far as that does not take long."""
        sink = self._route.sink
        self._settle_at = None
        try:
            # One that has not confirmed in time is only asked whether it has by now.
            lost = sink.barrier(time.monotonic() + (0.0 if self._held_up else CONFIRM_WAIT))
            # They are counted below; the sink gathers them until they are asked for.
            sink.confirmed()
        except Exception as error:  # noqa: BLE001 - whatever it is, the service goes on
            self._trouble(error)
            return
        again = sum(error.retriable for error in lost.values())
        self.counts["unsent"] += again
        self.counts["failed"] += len(lost) - again
        self.counts["sent"] += max(0, self._unconfirmed - len(lost))
        self._unconfirmed, self._held_up = 0, False
        self._log_first(lost)

    def close(self) -> None:
        """Have the last results confirmed, and disconnect."""
        try:
            if self._settle_at is not None:
                self.settle()
            self.counts["unsent"] += self._unconfirmed
            self._unconfirmed = 0
        finally:
            self._route.sink.close()

    def readings(self) -> Iterator[Reading]:
        """Its metrics."""
        text = "Results of the shadow that its sink has confirmed, cannot take, or was not there to take."
        counts = [((outcome,), count) for outcome, count in self.counts.items()]
        yield Reading("streamer_shadow_results_total", text, "counter", ("outcome",), counts)

    def document(self) -> dict[str, object]:
        """The same for people and programs, as JSON, and why results do not reach the sink at present."""
        return {"name": self._route.name, **self.counts, "down": self._broken or self._route.sink.down()}

    def _send(self, messages: Messages) -> None:
        refused = self._route.sink.send(messages, time.monotonic() + SEND_WAIT)
        full = [error for error in refused.values() if error.retriable]
        self.counts["unsent"] += len(full)
        self.counts["failed"] += len(refused) - len(full)
        self._unconfirmed += len(messages) - len(refused)
        if self._settle_at is None:
            self._settle_at = time.monotonic() + SETTLE
        self._log_first(refused)
        self._held_up = bool(full)

    def _count_failed(self, failed: Mapping[int, Exception]) -> None:
        self.counts["failed"] += len(failed)
        self._log_first(failed)

    def _trouble(self, error: Exception) -> None:
        """The sink or its codec cannot be used at present, or ever again."""
        self._log_once(error)
        if isinstance(error, ConnectorError) and error.retriable:
            self._held_up, self._settle_at = True, time.monotonic() + SETTLE
            return
        self._broken = str(error)
        self.counts["unsent"] += self._unconfirmed
        self._unconfirmed = 0

    def _log_first(self, errors: Mapping[int, Exception]) -> None:
        for error in errors.values():
            self._log_once(error)
            break

    def _log_once(self, error: Exception) -> None:
        if self._logged:
            return
        self._logged = True
        self._log.warning(
            "results of the shadow do not reach its sink, and this is not told again",
            sink=self._route.name,
            reason=str(error),
        )
