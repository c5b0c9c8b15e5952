"""A service as the one query of a session of its own, for `streamer run --engine spark`."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections import Counter
from os import PathLike
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery, StreamingQueryListener

from pipelines.errors import StreamerError
from streamer.agent.summary import Summary
from streamer.definition.connectors.written import Written
from streamer.definition.service import Service
from streamer.observe.metrics import OUTCOMES
from streamer.spark.starting import CONNECTOR, OBSERVED, started
from streamer.spark.workererror import reason_of

SUBMIT: Final = "PYSPARK_SUBMIT_ARGS"
"""The environment variable with options of spark-submit. Where it is set, it says which packages and jars there are."""
_WAIT: Final = 0.5
"""Seconds of one wait for the end of the query, between which a stop is noticed."""
_LAST_NEWS: Final = 10.0
"""Seconds to wait for the metrics of the last micro-batch."""


class SparkRun:
    """One run of one service: `start()`, `stop()`, `join()`, as an `Agent` has them."""

    def __init__(self, service: Service, written: Written, checkpoint: str | PathLike[str]) -> None:
        self._service = service
        self._written = written
        self._checkpoint = checkpoint
        self._counts = _Counts()
        self._stopped = threading.Event()
        self._began = time.monotonic()
        self._spark: SparkSession | None = None
        self._query: StreamingQuery | None = None

    def start(self) -> None:
        """Make the session and start the query. Raises as `streamer.spark.start`."""
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        builder = SparkSession.builder.appName(self._service.name)
        if SUBMIT not in os.environ:
            builder = builder.config("spark.jars.packages", CONNECTOR)
        # It is drawn into the log of this command.
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        # In what Spark logs and shows.
        builder = builder.config("spark.redaction.regex", "(?i)secret|password|token|access[.]?key|keystore[.]key|jaas")
        at_ctrl_c = signal.getsignal(signal.SIGINT)
        self._spark = builder.getOrCreate()
        if threading.current_thread() is threading.main_thread():
            # PySpark has set one that breaks the micro-batch off.
            signal.signal(signal.SIGINT, at_ctrl_c)
        self._spark.streams.addListener(self._counts)
        self._query = started(self._spark, self._service, self._written, checkpoint=self._checkpoint)

    def stop(self) -> None:
        """End after the micro-batch that runs, or when `limits.drain` is over. Returns at once; from any thread."""
        self._stopped.set()

    def join(self) -> Summary:
        """Wait for the end."""
        query, error = self._open_query, None
        try:
            while not self._stopped.is_set() and query.isActive:
                query.awaitTermination(_WAIT)
            self._drain(query)
            if query.isActive:
                query.stop()
            # Raises what ended it, also between the questions whether it is active.
            query.awaitTermination(_WAIT)
        except Exception as failure:  # noqa: BLE001 - whatever ended the query is the reason in the summary
            error = failure
        self._counts.ended.wait(_LAST_NEWS)
        counts = self._counts.counts
        return Summary(
            service=self._service.name,
            ok=counts["ok"],
            dead=counts["dead"],
            dropped=counts["dropped"],
            passed=counts["passed"],
            failed=counts["failed"],
            seconds=time.monotonic() - self._began,
            reason="failed" if error is not None else "stopped",
            error=None if error is None else reason_of(str(error)),
        )

    def close(self) -> None:
        """End the session."""
        if self._spark is not None:
            self._spark.stop()

    @property
    def _open_query(self) -> StreamingQuery:
        if self._query is None:
            raise StreamerError(f"the service {self._service.name} was never started")
        return self._query

    def _drain(self, query: StreamingQuery) -> None:
        """Wait for the end of the micro-batch that runs: what is cut short comes again at the next start."""
        deadline = time.monotonic() + self._service.limits.drain
        before = self._counts.batches
        while time.monotonic() < deadline and query.isActive:
            if self._counts.batches != before or not query.status["isTriggerActive"]:
                return
            time.sleep(0.05)


class _Counts(StreamingQueryListener):  # type: ignore[misc, unused-ignore]  # without PySpark
    """The records of the micro-batches that have ended, by outcome."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.batches = 0
        self.ended = threading.Event()

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        return

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        self.batches += 1
        observed = event.progress.observedMetrics.get(OBSERVED)
        if observed is not None:
            self.counts.update({name: observed[name] or 0 for name in OUTCOMES})

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        return

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        self.ended.set()
