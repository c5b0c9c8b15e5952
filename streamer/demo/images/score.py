"""The score of the demo: which images have a prediction, after what time, and whether it is right."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamer.demo.images.example import Bytes

Floats = npt.NDArray[np.float64]

UNANSWERED = -1
RECENT = 2.0
"""Seconds that count as "now" on the screen."""


@dataclass(frozen=True, slots=True)
class ScoreState:
    """The score at one moment. Times are in seconds, NaN as long as there is no prediction."""

    sent: int
    answered: int
    correct: int
    rate: float
    """Answers a second."""
    p50: float
    p95: float
    p99: float

    @property
    def accuracy(self) -> float:
        """Correct answers among all, 0 to 1; NaN without any."""
        return self.correct / self.answered if self.answered else float("nan")


class Score:
    """One entry for each image sent, by its id. Written by the threads of feeder and viewer, read by any thread."""

    def __init__(self, labels: Bytes, capacity: int) -> None:
        """`labels` are the labels of the images, which are sent in turn: `id` is that of image `id % len(labels)`."""
        self._labels = labels
        self._lock = threading.Lock()
        self._sent_at = np.full(capacity, np.nan)
        self._answered_at = np.full(capacity, np.nan)
        self._answers = np.full(capacity, UNANSWERED, np.int8)
        self._sent = 0
        self._last_id = UNANSWERED

    @property
    def capacity(self) -> int:
        """The most images that can be sent."""
        return len(self._answers)

    def sending(self, first: int, stop: int) -> None:
        """Note that the images with the ids `first` to `stop - 1` are being sent now."""
        with self._lock:
            self._sent_at[first:stop] = time.monotonic()
            self._sent = stop

    def answered(self, ids: npt.NDArray[np.int64], labels: npt.NDArray[np.int8]) -> None:
        """Note that these predictions have arrived now. Second ones, and those of ids never sent, do not count."""
        now = time.monotonic()
        with self._lock:
            known = (ids >= 0) & (ids < self._sent)
            ids, labels = ids[known], labels[known]
            new = self._answers[ids] == UNANSWERED
            ids, labels = ids[new], labels[new]
            if len(ids):
                self._answers[ids] = labels
                self._answered_at[ids] = now
                self._last_id = int(ids[-1])

    def state(self) -> ScoreState:
        """The score now; rate and latencies of the last seconds."""
        return self._state(lambda at, late: at > time.monotonic() - RECENT)

    def final(self, warm_up: float) -> ScoreState:
        """The score at the end; rate and latencies of messages that were sent later than `warm_up` seconds after the
        first."""
        return self._state(lambda at, late: at - late >= np.nanmin(at - late) + warm_up)

    def _state(self, of: Callable[[Floats, Floats], npt.NDArray[np.bool_]]) -> ScoreState:
        with self._lock:
            sent = self._sent
            answers = self._answers[:sent].copy()
            late = self._answered_at[:sent] - self._sent_at[:sent]
            at = self._answered_at[:sent].copy()
        done = answers != UNANSWERED
        correct = int((answers[done] == self._expected(np.flatnonzero(done))).sum())
        shown = of(at[done], late[done]) if done.any() else np.zeros(0, np.bool_)
        if not shown.any():
            return ScoreState(sent, int(done.sum()), correct, 0.0, *[float("nan")] * 3)
        at, late = at[done][shown], late[done][shown]
        span = float(at.max() - at.min())
        rate = len(at) / span if span > 0 else 0.0
        p50, p95, p99 = np.percentile(late, (50, 95, 99)).tolist()
        return ScoreState(sent, int(done.sum()), correct, rate, p50, p95, p99)

    def latest(self, count: int) -> list[tuple[int, int, bool]]:
        """The newest answers: image number, predicted digit, whether it is right."""
        with self._lock:
            last = self._last_id
            ids = np.flatnonzero(self._answers[: last + 1] != UNANSWERED)[-count:]
            answers = self._answers[ids]
        right = answers == self._expected(ids)
        numbers = ids % len(self._labels)
        return list(zip(numbers.tolist(), answers.tolist(), right.tolist(), strict=True))

    def by_image(self) -> npt.NDArray[np.int8]:
        """The last prediction of each image, `int8 (N,)`, -1 for one without any."""
        predictions = np.full(len(self._labels), UNANSWERED, np.int8)
        with self._lock:
            ids = np.flatnonzero(self._answers[: self._sent] != UNANSWERED)
            predictions[ids % len(self._labels)] = self._answers[ids]
        return predictions

    def _expected(self, ids: npt.NDArray[np.intp]) -> npt.NDArray[np.int8]:
        return self._labels[ids % len(self._labels)].astype(np.int8)
