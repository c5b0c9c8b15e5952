"""`Export`: where spans go. They wait in a bounded queue, and a thread of its own sends them to the collector."""

from __future__ import annotations

import threading
import time
import uuid
from collections import deque
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

from opentelemetry.sdk.resources import Resource

from pipelines.errors import DISTRIBUTION
from streamer.tracing import otlp
from streamer.tracing.finished import Finished
from streamer.tracing.sending import Sender

QUEUE: Final = 8192
"""Spans that wait for the collector at most; further ones are lost."""
BATCH: Final = 2048
"""Spans in one request at most."""
DELAY: Final = 1.0
"""Seconds that a span waits for others."""
PAUSE: Final = 5.0
"""Seconds in which nothing is sent after a request has failed: spans are not even written then."""
LAST_WAIT: Final = 0.8
"""Seconds that sending the last spans may take."""
TOLD_EVERY: Final = 60.0
"""Seconds between two lines of the log about spans that found no place in the queue."""


class Export:
    """The way of spans from one service to its collector: `put` takes them, `close` sends the last ones."""

    def __init__(self, service: str, endpoint: str, log: Any) -> None:
        self._log = log
        self._collector = _Collector(service, endpoint, log)
        self._queue: deque[Finished] = deque()
        self._put = 0
        """Spans that were put into the queue, counted by the thread that puts them."""
        self._sent = 0
        """Spans that left the queue, counted by the thread that sends them."""
        self._unplaced = 0
        """Spans that found no place in the queue, counted by the thread that puts them."""
        self._reported = 0
        """How many of these the log has named."""
        self._reported_at = -TOLD_EVERY
        self._wake = threading.Event()
        self._ends = False
        self._sending = threading.Thread(target=self._send, name="spans", daemon=True)
        self._sending.start()

    def put(self, finished: Finished) -> None:
        """Have the spans of a batch sent; those that find no place are lost. Never holds up its one caller."""
        count = len(finished)
        waiting = self._put - self._sent
        room = QUEUE - waiting
        if count > room:
            self._unplaced += count
            if room <= 0:
                return
            finished = finished.cut(room)
            count = len(finished)
            self._unplaced -= count
        self._put += count
        self._queue.append(finished)
        if waiting + count >= BATCH:
            self._wake.set()

    def close(self) -> None:
        """Send the spans that wait, as far as that takes little time."""
        self._ends = True
        self._wake.set()
        self._sending.join(LAST_WAIT)
        if self._sending.is_alive():
            self._collector.end()
            self._log.warning("the last spans are lost, as the collector does not answer in time")

    def _send(self) -> None:
        """The thread that sends: writing spans down is its work, not that of the thread that runs batches."""
        while True:
            self._wake.wait(DELAY)
            self._wake.clear()
            ends = self._ends
            self._send_some()
            # Fewer wait for others: a request costs as much as writing a hundred spans.
            while self._put - self._sent >= (1 if ends else BATCH) and not self._collector.has_ended:
                self._send_some()
            self._tell(ends)
            if ends:
                self._collector.end()
                return

    def _send_some(self) -> None:
        spans: list[bytes] = []
        count = 0
        while self._queue and count < BATCH:
            finished = self._queue.popleft()
            count += len(finished)
            if self._collector.pauses:
                self._collector.lost += len(finished)
                continue
            try:
                spans += finished.spans()
            except Exception as error:  # noqa: BLE001 - spans of other batches are sent all the same
                self._log.warning("spans are lost", error=f"{type(error).__name__}: {error}")
        for at in range(0, len(spans), BATCH):
            self._collector.take(spans[at : at + BATCH])
        # Now there is room for others.
        self._sent += count

    def _tell(self, ends: bool) -> None:
        unplaced, now = self._unplaced, time.monotonic()
        if unplaced == self._reported or not (ends or now - self._reported_at >= TOLD_EVERY):
            return
        self._log.warning(
            "spans are lost, as there are more than the collector takes; sample fewer records",
            lost=unplaced - self._reported,
        )
        self._reported, self._reported_at = unplaced, now


class _Collector:
    """Sends spans of one service, and tells once when that begins to fail, and once when it works again."""

    def __init__(self, service: str, endpoint: str, log: Any) -> None:
        attributes = {
            "service.name": service,
            "service.instance.id": str(uuid.uuid4()),
            "telemetry.distro.name": "streamer",
            "telemetry.distro.version": version(DISTRIBUTION),
        }
        self._resource = otlp.resource_of(Resource.create(attributes).attributes)
        self._scope = otlp.scope_of("streamer", version(DISTRIBUTION))
        self._sender = Sender(endpoint)
        self._endpoint = endpoint
        self._log = log
        self._again_at = 0.0
        self._fails = False
        self._ended = threading.Event()
        self.lost = 0
        """Spans that it did not take since it began to fail."""

    @property
    def pauses(self) -> bool:
        """Whether it has failed a moment ago."""
        return time.monotonic() < self._again_at

    @property
    def has_ended(self) -> bool:
        """Whether nothing is sent any more."""
        return self._ended.is_set()

    def take(self, spans: Sequence[bytes]) -> None:
        """Send these spans, unless it has failed a moment ago."""
        if self.pauses:
            self.lost += len(spans)
            return
        try:
            trouble = self._sender.send(otlp.request(self._resource, self._scope, spans))
        except Exception as error:  # noqa: BLE001 - of the library; later spans are sent all the same
            trouble = f"{type(error).__name__}: {error}"
        if self._ended.is_set():
            return
        if trouble is None:
            if self._fails:
                self._log.info("the collector takes spans again", endpoint=self._endpoint, lost=self.lost)
            self._again_at, self._fails, self.lost = 0.0, False, 0
            return
        if not self._fails:
            self._log.warning(
                "the collector does not take spans, which are lost; records are not held up by that",
                endpoint=self._endpoint,
                reason=trouble,
            )
        self.lost += len(spans)
        self._fails = True
        self._again_at = time.monotonic() + PAUSE

    def end(self) -> None:
        """Send nothing any more."""
        if not self._ended.is_set():
            self._ended.set()
            self._sender.close()
