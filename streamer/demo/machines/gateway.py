"""The gateway: publishes the windows of all machines in turn."""

from __future__ import annotations

import time

import numpy as np

from connectors.mqtt.sinkconfig import MqttSinkConfig
from connectors.records import Messages
from connectors.sink import Sink
from streamer.demo.machines.board import Board
from streamer.demo.machines.hall import Hall, payload, topic
from streamer.demo.sender import SteadySender


def publisher(url: str, client_id: str) -> Sink:
    """A sink for the machines' windows, not open yet."""
    return MqttSinkConfig(name="gateway", url=url, client_id=client_id, topic="factory").build()


class Gateway(SteadySender):
    """Sends windows, and enters them on the board: message n is window `n // machines` of machine `n % machines`."""

    def __init__(self, sink: Sink, hall: Hall, board: Board | None, *, rate: float, total: int) -> None:
        super().__init__(sink, "windows", rate=rate, total=total)
        self._hall = hall
        self._board = board
        self._topics = [topic(line, machine) for line, machine in hall.places]
        self._began: float | None = None

    def probe(self) -> None:
        """Publish a window of each machine with a number that is not scored, to see whether scores come back."""
        windows = [self._hall.window(machine, 0.0) for machine in range(len(self._topics))]
        self.send(_messages([payload(window, -1) for window in windows], self._topics))
        self.confirm()

    def made(self, first: int, stop: int) -> Messages:
        """The messages of the windows with the numbers `first` to `stop - 1`, which are entered on the board."""
        now = time.monotonic()
        if self._began is None:
            self._began = now
        values, topics = [], []
        for number in range(first, stop):
            turn, machine = divmod(number, len(self._topics))
            window = self._hall.window(machine, now - self._began)
            if self._board is not None:
                self._board.sending(number, window)
            values.append(payload(window, turn))
            topics.append(self._topics[machine])
        return _messages(values, topics)


def _messages(values: list[bytes], topics: list[str]) -> Messages:
    return Messages(np.arange(len(values), dtype=np.int64), values, topics=topics)
