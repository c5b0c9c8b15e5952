"""The feeder: sends the images in turn, at a steady rate, from a thread of its own."""

from __future__ import annotations

import threading
import time

import numpy as np

from connectors.records import Messages
from connectors.sink import Sink
from pipelines.data.data import Data
from pipelines.errors import StreamerError
from streamer.demo.example import Digits
from streamer.demo.score import Score

RUN_HEADER = "demo"
"""Header by which predictions of this run are told from others; the service hands headers on."""
TICK = 0.005
"""Seconds between two sends."""
FULL = 10.0
"""Seconds that a send may wait for a full sink, and a barrier for confirmations."""


class Feeder:
    """Sends image after image, with an id and its label, as ProtoData."""

    def __init__(self, sink: Sink, digits: Digits, score: Score, run: str, *, rate: float, seconds: float) -> None:
        self._sink = sink
        self._digits = digits
        self._score = score
        self._headers = [(RUN_HEADER, run.encode())]
        self._rate = rate
        self._total = min(round(rate * seconds), score.capacity)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)
        self._error: Exception | None = None

    def probe(self) -> None:
        """Send one image with an id that does not count, to see whether the way to the viewer is open."""
        self._send([-1])
        self._confirm()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Send no more. From any thread."""
        self._stop.set()

    @property
    def done(self) -> bool:
        """Whether everything was sent and confirmed. Raises what went wrong."""
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()

    def _run(self) -> None:
        began = time.monotonic()
        sent = 0
        try:
            while sent < self._total and not self._stop.wait(TICK):
                due = min(int((time.monotonic() - began) * self._rate) + 1, self._total)
                if due > sent:
                    self._score.sending(sent, due)
                    self._send(range(sent, due))
                    sent = due
            self._confirm()
        except Exception as error:  # noqa: BLE001 - raised to whoever asks whether it is done
            self._error = error

    def _send(self, ids: range | list[int]) -> None:
        values = [self._payload(number) for number in ids]
        messages = Messages(np.arange(len(values), dtype=np.int64), values, headers=[self._headers] * len(values))
        for error in self._sink.send(messages, time.monotonic() + FULL).values():
            raise StreamerError(f"the broker does not take the images: {error}") from error

    def _confirm(self) -> None:
        for error in self._sink.barrier(time.monotonic() + FULL).values():
            raise StreamerError(f"images were lost on their way to the broker: {error}") from error

    def _payload(self, number: int) -> bytes:
        at = number % len(self._digits.labels)
        data = Data({"image": self._digits.images[at], "id": number, "label": int(self._digits.labels[at])})
        return data.to_bytes()
