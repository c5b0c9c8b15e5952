"""`ViewSink`: a page in a browser that shows the newest result of each camera."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from connectors.camera.health import TellsCameras
from connectors.http.listening import url_of
from connectors.http.port import HttpPort
from connectors.measures import Measure
from connectors.records import Ints, Messages
from connectors.sink import Lost, Refused, Sink
from connectors.source import Source
from connectors.units import host_and_port
from connectors.view.board import Board
from connectors.view.config import ViewSinkConfig
from connectors.view.eventlog import EventLog
from connectors.view.madeclip import TellsClips
from connectors.view.pages import Pages
from connectors.view.places import hides_something, places_of
from connectors.view.result import data_of
from pipelines.errors import ConnectorError

_log = logging.getLogger(__name__)


class ViewSink(Sink):
    """Shows the newest result of each camera in browsers. A message is confirmed as soon as the sink has it.

    It never waits for browsers: a picture that is not shown in time is replaced by a newer one, and while no page is
    open no picture is encoded. Refuses results without a picture.
    """

    def __init__(self, config: ViewSinkConfig) -> None:
        self.name = config.label
        self.events = EventLog(config.most_events)
        self.board = Board(config.width, config.quality, config.fps, self.events)
        self._listen = config.listen
        self._taking = config.taking
        self._clips = config.clips
        self._token = None if config.token is None else config.token.get_secret_value()
        self._port: HttpPort | None = None
        self._confirmed: list[Ints] = []
        self._cameras: list[TellsCameras] = []
        self._places: list[dict[str, Any]] = []
        self._began = 0.0

    @property
    def address(self) -> tuple[str, int] | None:
        """Host and port of the page; `None` while it is not open."""
        return None if self._port is None else self._port.address

    @property
    def page(self) -> tuple[str, int] | None:
        """As `Sink.page`."""
        return self.address

    def attach(self, sources: Sequence[Source]) -> None:
        """As `Sink.attach`: has cameras tell how they are, to show those too that give no pictures, has clips told, and
        looks up zones and lines."""
        self._cameras = [source for source in sources if isinstance(source, TellsCameras)]
        self._places = places_of(self.pipeline)
        shows_clips = self._clips if self._clips is not None else not hides_something(self.pipeline)
        for other in self.others if shows_clips else ():
            if isinstance(other, TellsClips):
                other.on_clip(self.events.clip)

    def open(self) -> None:
        """Serve the page. Raises `ConnectorError` if the address cannot be used."""
        host, port = host_and_port(self._listen)
        pages = Pages(self.board, self.service or self.name, self._token, self._states, self._places)
        try:
            self._port = HttpPort(host, port, pages.answer, "view")
        except (OSError, OverflowError) as error:
            raise ConnectorError(
                f'sink {self.name}: listen "{self._listen}": {error}; choose another address or port'
            ) from error
        self._began = time.monotonic()
        _log.info("sink %s shows results at %s", self.name, url_of(self._port.address))
        self.board.start()

    def send(self, messages: Messages, deadline: float) -> Refused:
        """As `Sink.send`; it never has to wait."""
        if self._port is None:
            raise ConnectorError(f"sink {self.name} is not open")
        refused: dict[int, ConnectorError] = {}
        for index, value in enumerate(messages.values):
            if value is None:
                continue
            try:
                self.board.show(self._taking.shown(data_of(value), self.name))
            except ConnectorError as error:
                refused[index] = ConnectorError(f"sink {self.name}: {error}")
        kept = [messages.parents(index) for index in range(len(messages)) if index not in refused]
        if kept:
            self._confirmed.append(np.concatenate(kept))
        return refused

    def barrier(self, deadline: float) -> Lost:
        """As `Sink.barrier`: it returns at once, as messages are confirmed when they are sent."""
        return {}

    def confirmed(self) -> list[Ints]:
        """As `Sink.confirmed`."""
        confirmed, self._confirmed = self._confirmed, []
        return confirmed

    def behind(self) -> float:
        """As `Sink.behind`: always 0."""
        return 0.0

    def close(self) -> None:
        """Stop serving the page."""
        opened, self._port = self._port, None
        if opened is not None:
            opened.close()
            self.board.stop()

    def _states(self) -> dict[str, Any]:
        """The state of each camera, why it is not live, the seconds since its last picture, and for how many seconds it
        has given none: since the page began, if there was none yet."""
        waiting = round(time.monotonic() - self._began, 1)
        states = ((name, state) for source in self._cameras for name, state in source.cameras().items())
        return {
            name: {
                **{key: state[key] for key in ("state", "reason", "last_picture_seconds")},
                "silent_seconds": waiting if state["last_picture_seconds"] is None else state["last_picture_seconds"],
            }
            for name, state in states
        }

    def metrics(self) -> Sequence[Measure]:
        """Results shown, pictures encoded and failed, and the number of browsers that watch."""
        board = self.board
        return (
            Measure("results", "Results that were to be shown.", board.shown),
            Measure("events", "Events that were to be listed.", self.events.total),
            Measure("pictures_encoded", "Pictures that were encoded for open pages, or of events.", board.encoded),
            Measure("pictures_failed", "Pictures that could not be encoded.", board.failed),
            Measure("watchers", "Streams that are being watched.", board.watchers, "gauge"),
        )
