"""`Export`: where spans go. They wait in a bounded queue, and a thread of its own sends them to the collector."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from pipelines.errors import DISTRIBUTION

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
_LIBRARIES: Final = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk._shared_internal")


class Export:
    """The way of spans from one service to its collector: `tracer` makes them, `close` sends the last ones."""

    def __init__(self, service: str, endpoint: str, log: Any) -> None:
        for library in _LIBRARIES:
            # They log each failure, and each span that the queue has no room for.
            logging.getLogger(library).setLevel(logging.CRITICAL + 1)
        self._log = log
        self._exporter = _Exporter(endpoint, log)
        resource = Resource.create(
            {
                "service.name": service,
                "service.instance.id": str(uuid.uuid4()),
                "telemetry.distro.name": "streamer",
                "telemetry.distro.version": version(DISTRIBUTION),
            }
        )
        # A batch links to all its sampled records.
        limits = SpanLimits(max_links=QUEUE)
        self._provider = TracerProvider(ALWAYS_ON, resource, shutdown_on_exit=False, span_limits=limits)
        self._provider.add_span_processor(
            BatchSpanProcessor(self._exporter, QUEUE, DELAY * 1000, BATCH, TIMEOUT * 1000)
        )
        self.tracer = self._provider.get_tracer("streamer", version(DISTRIBUTION))

    def close(self) -> None:
        """Send the spans that wait, as far as that takes little time."""
        ending = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        ending.start()
        ending.join(LAST_WAIT)
        if ending.is_alive():
            self._exporter.shutdown()
            self._log.warning("the last spans are lost, as the collector does not answer in time")


class _Exporter:
    """Sends spans by OTLP, and tells once when that begins to fail, and once when it works again."""

    def __init__(self, endpoint: str, log: Any) -> None:
        self._endpoint = endpoint
        self._log = log
        self._exporter = OTLPSpanExporter(traces_url(endpoint), timeout=TIMEOUT)
        self._again_at = 0.0
        self._lost = 0
        self._ended = threading.Event()

    def export(self, spans: Sequence[Any]) -> Any:
        """Send these spans, unless the collector has failed a moment ago."""
        if time.monotonic() < self._again_at:
            self._lost += len(spans)
            return SpanExportResult.FAILURE
        result = self._exporter.export(spans)
        if self._ended.is_set():
            return result
        if result is SpanExportResult.SUCCESS:
            if self._lost:
                self._log.info("the collector takes spans again", endpoint=self._endpoint, lost=self._lost)
            self._again_at, self._lost = 0.0, 0
            return result
        if not self._lost:
            self._log.warning(
                "the collector does not take spans, which are lost; records are not held up by that",
                endpoint=self._endpoint,
            )
        self._lost += len(spans)
        self._again_at = time.monotonic() + PAUSE
        return result

    def shutdown(self) -> None:
        """Give up what is being sent."""
        if not self._ended.is_set():
            self._ended.set()
            self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 0) -> bool:
        """Nothing waits here."""
        return True


def traces_url(endpoint: str) -> str:
    """The address that traces are posted to, of a collector's base address."""
    base = endpoint.rstrip("/")
    return base if base.endswith("/v1/traces") else f"{base}/v1/traces"
