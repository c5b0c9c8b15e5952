"""Screens of the demos: a panel in a terminal that is drawn again and again, or a line now and then."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

Look = TypeVar("Look")
"""The data that a demo shows at one moment."""
EVERY = 2.0
"""Seconds between two plain lines."""


class Screen(ABC, Generic[Look]):
    """Shows the state of a demo within a `with` block."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Does nothing: there is no screen to restore."""

    @abstractmethod
    def show(self, look: Look) -> None:
        """Show this state now."""


class DrawnScreen(Screen[Look]):
    """A panel that is drawn again several times a second, and gone at the end."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        super().__init__(console)
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def show(self, look: Look) -> None:
        self._live.update(self._panel(look), refresh=True)

    @abstractmethod
    def _panel(self, look: Look) -> RenderableType: ...
