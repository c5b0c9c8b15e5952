"""`Pausing`: polling of single sources is stopped and begun again on command, while the service goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pipelines.errors import StreamerError
from streamer.agent.intakes import Intake


class Pausing:
    """Which sources of a service are paused. From any thread.

    A source that is paused is not polled: its records wait on the bus, it stays in its consumer group, and what was
    polled before is run. Requests of clients that wait for answers are refused instead (503), and those that were
    accepted are run.
    """

    def __init__(self, intakes: Callable[[], Sequence[Intake]], log: Any) -> None:
        """`intakes` gives those of all sources, once they are open."""
        self._intakes = intakes
        self._log = log

    def pause(self, source: str) -> None:
        """Poll this source no more. Raises `StreamerError` for an unknown name, and before the sources are open."""
        self._set(source, True)

    def resume(self, source: str) -> None:
        """Poll this source again. Raises as `pause`."""
        self._set(source, False)

    @property
    def paused(self) -> list[str]:
        """The names of the sources that are paused."""
        return [intake.source.name for intake in self._intakes() if intake.state.paused]

    def refuses(self, source: str | None = None) -> str | None:
        """Why requests of clients are refused, those of one source or of any; `None`: none are."""
        for intake in self._intakes():
            if intake.state.paused and intake.watch.is_asked and source in (None, intake.source.name):
                return f"source {intake.source.name} is paused"
        return None

    def _set(self, source: str, paused: bool) -> None:
        intakes = {intake.source.name: intake for intake in self._intakes()}
        if not intakes:
            raise StreamerError("the service is starting: its sources are not open yet")
        if source not in intakes:
            raise StreamerError(f'there is no source "{source}"; there are {", ".join(intakes)}')
        if intakes[source].pause(paused):
            self._log.warning("paused by a command" if paused else "resumed by a command", source=source)
