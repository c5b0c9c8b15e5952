"""`Shadow`: a version of the models that runs the same records beside the service, to be compared with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple

from pipelines.data.batch import Batch
from pipelines.data.result import Result
from pipelines.observe.meters import Reading
from streamer.models.comparing import Comparison
from streamer.models.shadowsink import CONFIRM_WAIT, ShadowSink
from streamer.models.version import Version

END_WAIT: Final = 1.0
"""Seconds that a batch which the shadow runs is waited for when the service ends."""
_OUTCOMES: Final = ("ok", "failed", "skipped")


class _Work(NamedTuple):
    version: Version
    batch: Batch
    result: Result


class Shadow:
    """Runs batches once more, in a thread of its own, after their results were sent, and compares the results.

    While it is busy, batches are skipped and counted. Nothing that goes wrong in it harms the service.
    """

    def __init__(self, version: Callable[[], Version], log: Any, sink: ShadowSink | None = None) -> None:
        """`version` gives the one that is in use as the shadow; `sink` gets its results.

        The sink is opened now, and closed at the end. Raises `ConnectorError` as opening it does.
        """
        self.counts = dict.fromkeys(_OUTCOMES, 0)
        """Records by outcome."""
        self.seconds = 0.0
        """What its calls took."""
        self.comparison = Comparison()
        self._version = version
        self._log = log
        self._busy = False
        self._logged = False
        self._sink = sink
        self._running: Version | None = None
        self._ended = False
        self._queue: SimpleQueue[_Work | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="shadow", daemon=True)
        if sink is not None:
            sink.open()
        self._thread.start()

    def offer(self, batch: Batch, result: Result) -> None:
        """Run this batch, whose result was sent, if nothing else is being run. For the run thread."""
        if not batch.size:
            return
        if self._busy:
            self.counts["skipped"] += batch.size
            return
        self._busy = True
        self._queue.put(_Work(self._version(), batch, result))

    def stop(self) -> None:
        """Run no more, and send what was run. Returns at once."""
        self._queue.put(None)

    def end(self) -> Version | None:
        """Wait for `END_WAIT` seconds after `stop`, and as long as sending may take.

        Returns the version that it still runs after that: it cannot be closed.
        """
        self.stop()
        self._thread.join(END_WAIT + (0.0 if self._sink is None else CONFIRM_WAIT))
        # In this order: the thread says that it runs one before it looks whether it may.
        self._ended = True
        return self._running

    def readings(self) -> Iterator[Reading]:
        """Its metrics."""
        text = "Records that the shadow has run, or skipped while it was busy."
        counts = [((outcome,), count) for outcome, count in self.counts.items()]
        yield Reading("streamer_shadow_records_total", text, "counter", ("outcome",), counts)
        outputs = list(self.comparison.outputs.items())
        pairs = [
            ((output, outcome), getattr(compared, outcome))
            for output, compared in outputs
            for outcome in ("equal", "different", "missing")
        ]
        text = "Values of the shadow's results, as compared with those of the service."
        yield Reading("streamer_shadow_values_total", text, "counter", ("output", "outcome"), pairs)
        largest = [((output,), compared.largest) for output, compared in outputs]
        text = "The largest difference between two numbers of an output."
        yield Reading("streamer_shadow_difference", text, "gauge", ("output",), largest)
        if self._sink is not None:
            yield from self._sink.readings()

    def document(self) -> dict[str, object]:
        """The same for people and programs, as JSON."""
        outputs = {
            output: {
                "equal": compared.equal,
                "different": compared.different,
                "missing": compared.missing,
                "largest_difference": compared.largest,
            }
            for output, compared in list(self.comparison.outputs.items())
        }
        alone, beside = self.comparison.failed
        counts = {**self.counts, "failed_only_here": beside, "failed_only_in_service": alone}
        sink = {} if self._sink is None else {"sink": self._sink.document()}
        return {**counts, "seconds": round(self.seconds, 3), "outputs": outputs, **sink}

    def _run(self) -> None:
        try:
            self._run_all()
        finally:
            if self._sink is not None:
                self._sink.close()

    def _next(self) -> _Work | None:
        while self._sink is not None and (left := self._sink.left) is not None:
            if left > 0:
                try:
                    return self._queue.get(timeout=left)
                except Empty:
                    pass
            self._sink.settle()
        return self._queue.get()

    def _run_all(self) -> None:
        while (work := self._next()) is not None:
            try:
                self._ran(work)
            except Exception as error:  # noqa: BLE001 - whatever it is, the service goes on
                self.counts["failed"] += work.batch.size
                if not self._logged:
                    self._logged = True
                    self._log.error(
                        "the shadow cannot run a batch, and this is not told again",
                        version=work.version.label,
                        error=f"{type(error).__name__}: {error}",
                    )
            finally:
                self._busy = False
            # The values are not held until the next batch comes.
            del work

    def _ran(self, work: _Work) -> None:
        began = time.perf_counter()
        with work.version.turn:
            self._running = work.version
            try:
                executors = work.version.executors
                if self._ended or not executors:
                    # It was replaced and closed before its turn.
                    self.counts["skipped"] += work.batch.size
                    return
                result = executors[0].run_batch(work.batch)
            finally:
                self._running = None
        self.seconds += time.perf_counter() - began
        self.counts["failed"] += len(result.failed)
        self.counts["ok"] += work.batch.size - len(result.failed)
        self.comparison.add(work.result, result)
        if self._sink is not None:
            self._sink.send(work.batch, result.batch, work.version.label)
