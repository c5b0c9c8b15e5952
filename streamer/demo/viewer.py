"""The viewer: reads the predictions as any other consumer would, and keeps the score."""

from __future__ import annotations

import threading

import numpy as np

from connectors.codec import Codec
from connectors.records import Records
from connectors.source import Source
from pipelines.data.data import Data
from streamer.demo.feeder import RUN_HEADER
from streamer.demo.score import Score

WAIT = 0.1
"""Seconds of one wait for a first prediction."""
AT_ONCE = 4096
"""Predictions taken in one go at most."""
ROOM = 16 << 20
"""Bytes taken in one go at most."""
WANTED = frozenset({"id", "label"})


class Viewer:
    """Takes the predictions of one run from a source, in a thread of its own."""

    def __init__(self, source: Source, codec: Codec, score: Score, run: str) -> None:
        self._source = source
        self._codec = codec
        self._score = score
        self._run_id = run.encode()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="viewer", daemon=True)
        self._error: Exception | None = None
        self.sees = threading.Event()
        """Set when the first prediction of the run, or an error, has come."""

    def start(self) -> None:
        """Connect and begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """Leave; waits for it."""
        self._stop.set()
        self._source.wake()
        if self._thread.ident is not None:
            self._thread.join(5.0)

    def check(self) -> None:
        """Raise what went wrong, if anything did."""
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._source.open()
            while not self._stop.is_set():
                for records in self._arrived():
                    self._take(records)
                self._source.events()
        except Exception as error:  # noqa: BLE001 - raised to whoever checks
            self._error = error
            self.sees.set()
        finally:
            self._source.close()

    def _arrived(self) -> list[Records]:
        # One record first, so that the others are not waited for.
        first = self._source.poll(1, ROOM, WAIT)
        return [first, self._source.poll(AT_ONCE, ROOM, 0.0)] if len(first) else []

    def _take(self, records: Records) -> None:
        if not len(records):
            return
        headers = records.header_column() or [None] * len(records)
        batch = self._codec.decode(records, WANTED).batch
        # A tombstone and what cannot be decoded are in no batch, so that rows are found by their numbers.
        ours = [
            data
            for row, data in zip(batch.rows.tolist(), batch.to_list(), strict=True)
            if (RUN_HEADER, self._run_id) in (headers[row] or ())
        ]
        if ours:
            self._score.answered(_ids(ours), _labels(ours))
            self.sees.set()


def _ids(predictions: list[Data]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array([data.get_int64("id") for data in predictions], np.int64)


def _labels(predictions: list[Data]) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
    return np.array([int(data.get_string("label")) for data in predictions], np.int8)
