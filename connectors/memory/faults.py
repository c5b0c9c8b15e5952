"""`Faults`: faults of a memory topic, on demand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from connectors.message import Message


@dataclass(slots=True)
class Faults:
    """Faults that the sinks of a topic suffer. Set them from any thread, at any time."""

    refuse: Callable[[Message], str | None] | None = None
    """Returns why this message is refused for good; `None` if it is not."""
    lose: Callable[[Message], bool] | None = None
    """Returns whether this message is lost after it was accepted."""
    refuse_late: Callable[[Message], str | None] | None = None
    """Returns why this message is refused, with all others of its batch, after a transactional sink has accepted it."""
    silent: int = 0
    """How many of the next commits of transactions are carried out without an answer."""
    delay: float = 0.0
    """Seconds that every `send` takes."""
    away: str | None = None
    """Why the topic cannot be reached; `None` if it can. Messages that are sent meanwhile wait, up to the sink's
    bound."""

    def cut(self, reason: str = "cut off") -> None:
        """The topic cannot be reached until `mend`."""
        self.away = reason

    def mend(self) -> None:
        """The topic can be reached again."""
        self.away = None
