"""`VideoSink`: results as annotated video, in files or to a server."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from connectors.measures import Measure
from connectors.records import Ints, Messages
from connectors.sink import Lost, Refused, Sink
from connectors.view.config import VideoSinkConfig
from connectors.view.result import Shown, data_of
from connectors.view.videowriter import VideoWriter
from pipelines.errors import ConnectorError

MOST_CAMERAS: Final = 64
"""The most cameras that are written at a time: each has an encoder and a thread."""
_FINISH: Final = 5.0
"""Seconds that `close` waits for files to be finished."""
_NO_NAME: Final = re.compile(r"[^\w.-]+")


class VideoSink(Sink):
    """Writes the pictures of each camera as video, with boxes drawn into them. Each camera has a thread that encodes.

    A message is confirmed when its picture is encoded, or dropped as the server is away. Refuses results without a
    picture, and those of more than `MOST_CAMERAS` cameras, or of a second camera if the place has no `{camera}`. Raises
    `ConnectorError` once a file cannot be written.
    """

    def __init__(self, config: VideoSinkConfig) -> None:
        self.name = config.label
        self._config = config
        self._taking = config.taking
        self._writers: dict[str, VideoWriter] = {}
        self._open = False
        self._rows: list[Ints] = []

    def open(self) -> None:
        """Get ready for pictures; files and connections are opened with the first picture of each camera."""
        self._open = True

    def send(self, messages: Messages, deadline: float) -> Refused:
        """As `Sink.send`."""
        if not self._open:
            raise ConnectorError(f"sink {self.name} is not open")
        self._raise_failure()
        refused: dict[int, ConnectorError] = {}
        for index, value in enumerate(messages.values):
            try:
                if value is None:
                    self._rows.append(messages.parents(index))
                    continue
                self._put(self._taking.shown(data_of(value), self.name), messages.parents(index), deadline)
            except ConnectorError as error:
                refused[index] = ConnectorError(f"sink {self.name}: {error}", retriable=error.retriable)
        return refused

    def barrier(self, deadline: float) -> Lost:
        """As `Sink.barrier`."""
        behind = [camera for camera, writer in self._writers.items() if not writer.wait(deadline)]
        self._raise_failure()
        if behind:
            raise ConnectorError(
                f"sink {self.name}: the video of {', '.join(sorted(behind))} is not encoded yet", retriable=True
            )
        return {}

    def confirmed(self) -> list[Ints]:
        """As `Sink.confirmed`."""
        rows, self._rows = self._rows, []
        for writer in self._writers.values():
            rows += writer.done()
        return rows

    def behind(self) -> float:
        """As `Sink.behind`: not measured, as an encoder finishes its pictures within moments."""
        return 0.0 if all(writer.wait(0.0) for writer in self._writers.values()) else 0.1

    def close(self) -> None:
        """Finish all files; waits a few seconds for that."""
        self._open = False
        for writer in self._writers.values():
            writer.close(_FINISH)

    def down(self) -> str | None:
        """Why a server cannot be reached; `None` if all can be."""
        return next((writer.down for writer in self._writers.values() if writer.down is not None), None)

    def metrics(self) -> Sequence[Measure]:
        """Pictures written and dropped."""
        writers = list(self._writers.values())
        return (
            Measure("frames", "Pictures that were encoded.", sum(writer.written for writer in writers)),
            Measure(
                "frames_passed_over",
                "Pictures that were not: unreadable, or the server was away.",
                sum(writer.passed_over for writer in writers),
            ),
        )

    def _put(self, shown: Shown, rows: Ints, deadline: float) -> None:
        writer = self._writers.get(shown.camera)
        if writer is None:
            if self._writers and "{camera}" not in str(self._config.target):
                (first,) = self._writers
                raise ConnectorError(
                    f'there is one place for the video of "{first}" and of "{shown.camera}"; put {{camera}} into it'
                )
            if len(self._writers) >= MOST_CAMERAS:
                raise ConnectorError(f"more than {MOST_CAMERAS} cameras cannot be written at a time")
            camera = shown.camera
            writer = VideoWriter(camera, lambda: self._target(camera), self._config)
            self._writers[camera] = writer
        if not writer.put(shown, rows, deadline):
            raise ConnectorError(f'the encoder of "{shown.camera}" is slower than its pictures come', retriable=True)

    def _target(self, camera: str) -> Path | str:
        # The name comes from records, so it may hold any characters.
        named = _NO_NAME.sub("_", camera)[:100].lstrip(".") or "camera"
        if isinstance(self._config.target, str):
            return self._config.target.replace("{camera}", named)
        path = Path(str(self._config.target).replace("{camera}", named))
        numbered = (path.with_stem(f"{path.stem}-{number}") for number in itertools.count(2))
        return next(candidate for candidate in itertools.chain([path], numbered) if not candidate.exists())

    def _raise_failure(self) -> None:
        for camera, writer in self._writers.items():
            if writer.failure is not None:
                raise ConnectorError(f'sink {self.name}: the video of "{camera}" cannot be written: {writer.failure}')
