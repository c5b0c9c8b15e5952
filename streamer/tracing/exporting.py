"""`Export`: where spans go. They wait in a bounded queue, and a thread of its own sends them to the collector."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from pipelines.errors import DISTRIBUTION
from streamer.tracing.finished import Finished

QUEUE: Final = 8192
"""Spans that wait for the collector at most; further ones are lost."""
BATCH: Final = 512
"""Spans in one request at most."""
DELAY: Final = 0.5
"""Seconds that a span waits for others."""
TIMEOUT: Final = 2.0
"""Seconds that a request may take, with all its tries."""
PAUSE: Final = 5.0
"""Seconds in which nothing is sent after a request has failed: spans are not even written then."""
LAST_WAIT: Final = 0.8
"""Seconds that sending the last spans may take."""
_LIBRARY: Final = "opentelemetry.exporter.otlp.proto.http.trace_exporter"


class Export:
    """The way of spans from one service to its collector: `put` takes them, `close` sends the last ones."""

    def __init__(self, service: str, endpoint: str, log: Any) -> None:
        # It logs each failure.
        logging.getLogger(_LIBRARY).setLevel(logging.CRITICAL + 1)
        self._log = log
        self._exporter = _Exporter(endpoint, log)
        self._resource = Resource.create(
            {
                "service.name": service,
                "service.instance.id": str(uuid.uuid4()),
                "telemetry.distro.name": "streamer",
                "telemetry.distro.version": version(DISTRIBUTION),
            }
        )
        self._scope = InstrumentationScope("streamer", version(DISTRIBUTION))
        self._queue: deque[Finished] = deque()
        self._put = 0
        """Spans that were put into the queue, counted by the thread that puts them."""
        self._sent = 0
        """Spans that left the queue, counted by the thread that sends them."""
        self._wake = threading.Event()
        self._ends = False
        self._sending = threading.Thread(target=self._send, name="spans", daemon=True)
        self._sending.start()

    def put(self, finished: Finished) -> None:
        """Have the spans of a batch sent; they are lost if too many wait. Called by one thread, never holds it up."""
        count = len(finished)
        waiting = self._put - self._sent
        if waiting and waiting + count > QUEUE:
            self._exporter.lose(count)
            return
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
            self._exporter.shutdown()
            self._log.warning("the last spans are lost, as the collector does not answer in time")

    def _send(self) -> None:
        """The thread that sends: writing spans down is its work, not that of the thread that runs batches."""
        while True:
            self._wake.wait(DELAY)
            self._wake.clear()
            ends = self._ends
            while self._queue and not self._exporter.is_shut:
                self._send_some()
            if ends:
                self._exporter.shutdown()
                return

    def _send_some(self) -> None:
        spans: list[ReadableSpan] = []
        count = 0
        while self._queue and count < BATCH:
            finished = self._queue.popleft()
            count += len(finished)
            if self._exporter.pauses:
                self._exporter.lose(len(finished))
            else:
                spans += finished.spans(self._resource, self._scope)
        try:
            for at in range(0, len(spans), BATCH):
                self._exporter.export(spans[at : at + BATCH])
        except Exception as error:  # noqa: BLE001 - of the library; later spans are sent all the same
            self._exporter.lose(len(spans))
            self._log.warning("spans are lost", error=f"{type(error).__name__}: {error}")
        self._sent += count


class _Exporter:
    """Sends spans by OTLP, and tells once when that begins to fail, and once when it works again."""

    def __init__(self, endpoint: str, log: Any) -> None:
        self._endpoint = endpoint
        self._log = log
        self._exporter = OTLPSpanExporter(traces_url(endpoint), timeout=TIMEOUT)
        self._again_at = 0.0
        self._fails = False
        self._lost = 0
        self._ended = threading.Event()

    @property
    def pauses(self) -> bool:
        """Whether the collector has failed a moment ago."""
        return time.monotonic() < self._again_at

    @property
    def is_shut(self) -> bool:
        """Whether nothing is sent any more."""
        return self._ended.is_set()

    def lose(self, count: int) -> None:
        """Count spans that are not sent."""
        self._lost += count

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send these spans, unless the collector has failed a moment ago."""
        if self.pauses:
            self.lose(len(spans))
            return SpanExportResult.FAILURE
        result = self._exporter.export(spans)
        if self._ended.is_set():
            return result
        if result is SpanExportResult.SUCCESS:
            if self._fails:
                self._log.info("the collector takes spans again", endpoint=self._endpoint, lost=self._lost)
            self._again_at, self._fails, self._lost = 0.0, False, 0
            return result
        if not self._fails:
            self._log.warning(
                "the collector does not take spans, which are lost; records are not held up by that",
                endpoint=self._endpoint,
            )
        self.lose(len(spans))
        self._fails = True
        self._again_at = time.monotonic() + PAUSE
        return result

    def shutdown(self) -> None:
        """Give up what is being sent."""
        if not self._ended.is_set():
            self._ended.set()
            self._exporter.shutdown()


def traces_url(endpoint: str) -> str:
    """The address that traces are posted to, of a collector's base address."""
    base = endpoint.rstrip("/")
    return base if base.endswith("/v1/traces") else f"{base}/v1/traces"
