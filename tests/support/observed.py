"""What a control port asks of a service, answered by one that does nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


class Quiet:
    """A service without sources, which is always well."""

    def live(self) -> str | None:
        """It lives."""
        return None

    def ready(self) -> str | None:
        """As `live`."""
        return self.live()

    def note(self) -> str | None:
        """It waits for nothing."""
        return None

    def pages(self) -> Mapping[str, Mapping[str, Callable[[], Any]]]:
        """It has none."""
        return {}

    def state(self) -> Mapping[str, Any]:
        """It tells nothing."""
        return {}

    def configuration(self) -> Mapping[str, Any]:
        """It has none."""
        return {}

    def pause(self, source: str) -> None:
        """Does nothing."""

    def resume(self, source: str) -> None:
        """Does nothing."""

    def weigh(self, variant: str, weight: float) -> None:
        """Does nothing."""

    def reload(self) -> None:
        """Does nothing."""

    def letters(self, count: int, deadline: float) -> Mapping[str, Any]:
        """It has none."""
        return {"place": None, "letters": [], "reason": None}

    def replay(self, letter: str, deadline: float, *, again: bool) -> Mapping[str, Any]:
        """Does nothing."""
        return {}
