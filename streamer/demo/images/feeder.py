"""The feeder: sends the images in turn."""

from __future__ import annotations

import numpy as np

from connectors.records import Messages
from connectors.sink import Sink
from pipelines.data.data import Data
from streamer.demo.images.example import Digits
from streamer.demo.images.score import Score
from streamer.demo.sender import SteadySender

RUN_HEADER = "demo"
"""Header that marks the predictions of this run; the service passes headers on."""


class Feeder(SteadySender):
    """Sends image after image, with an id and its label, as ProtoData."""

    def __init__(self, sink: Sink, digits: Digits, score: Score, run: str, *, rate: float, seconds: float) -> None:
        super().__init__(sink, "images", rate=rate, total=min(round(rate * seconds), score.capacity))
        self._digits = digits
        self._score = score
        self._headers = [(RUN_HEADER, run.encode())]

    def probe(self) -> None:
        """Send one image with an id that is not scored, to see whether predictions reach the viewer."""
        self.send(self._messages([-1]))
        self.confirm()

    def made(self, first: int, stop: int) -> Messages:
        """The messages of the images with the ids `first` to `stop - 1`, which are noted as sent."""
        self._score.sending(first, stop)
        return self._messages(range(first, stop))

    def _messages(self, ids: range | list[int]) -> Messages:
        values = [self._payload(number) for number in ids]
        return Messages(np.arange(len(values), dtype=np.int64), values, headers=[self._headers] * len(values))

    def _payload(self, number: int) -> bytes:
        at = number % len(self._digits.labels)
        data = Data({"image": self._digits.images[at], "id": number, "label": int(self._digits.labels[at])})
        return data.to_bytes()
