"""A sender: messages at a steady rate, from its own thread."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod

from connectors.records import Messages
from connectors.sink import Sink
from pipelines.errors import StreamerError

TICK = 0.005
"""Seconds between two sends."""
FULL = 10.0
"""Seconds that a send may wait for a full sink, and a barrier for confirmations."""


class SteadySender(ABC):
    """Sends `total` messages, `rate` a second. `what` names them in errors: "images"."""

    def __init__(self, sink: Sink, what: str, *, rate: float, total: int) -> None:
        self._sink = sink
        self._what = what
        self._rate = rate
        self._total = total
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
        self._error: Exception | None = None

    @abstractmethod
    def made(self, first: int, stop: int) -> Messages:
        """The messages with the numbers `first` to `stop - 1`; they are sent at once."""

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self) -> None:
        """Send no more messages. From any thread."""
        self._stop.set()

    @property
    def done(self) -> bool:
        """Whether sending has ended, because all messages are confirmed or by `stop`. Raises the thread's error."""
        if self._error is not None:
            raise self._error
        return not self._thread.is_alive()

    def send(self, messages: Messages) -> None:
        """Send these messages. Raises `StreamerError` if the sink does not take one of them."""
        for error in self._sink.send(messages, time.monotonic() + FULL).values():
            raise StreamerError(f"the broker does not take the {self._what}: {error}") from error

    def confirm(self) -> None:
        """Wait until all sent messages are confirmed. Raises `StreamerError` if one of them is lost."""
        for error in self._sink.barrier(time.monotonic() + FULL).values():
            raise StreamerError(f"{self._what} were lost on their way to the broker: {error}") from error

    def _run(self) -> None:
        began = time.monotonic()
        sent = 0
        try:
            while sent < self._total and not self._stop.wait(TICK):
                due = min(int((time.monotonic() - began) * self._rate) + 1, self._total)
                if due > sent:
                    self.send(self.made(sent, due))
                    sent = due
            self.confirm()
        except Exception as error:  # noqa: BLE001 - raised by `done`
            self._error = error
