"""`Commands`: what clients want of a repository, in one queue, of which one thread takes."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field

from connectors.http.endpoint.repository.models import Outcome, Verb
from streamer.models.repository.parameters import Parameters


@dataclass(slots=True, eq=False)
class Command:
    """Load or unload a model."""

    verb: Verb
    name: str
    """The model to load, or the endpoint to unload."""
    model: str
    """The model that it is about."""
    parameters: Parameters = field(default_factory=Parameters)
    waiting: list[Future[Outcome]] = field(default_factory=list)
    """Of all who asked for it."""
    by_itself: bool = False
    """Whether the service has it carried out by itself, as it starts."""

    def settle(self, outcome: Outcome) -> None:
        """Tell all who asked what became of it."""
        for future in self.waiting:
            # A client that has gone may have cancelled it.
            if future.set_running_or_notify_cancel():
                future.set_result(outcome)

    def is_like(self, other: Command) -> bool:
        """Whether both together have the effect of one."""
        return (
            self.verb == other.verb == "load"
            and (self.name, self.parameters.key) == (other.name, other.parameters.key)
            and self.parameters.share
            and other.parameters.share
        )


class Commands:
    """A bounded queue. Any thread puts commands in; a load that waits already is joined."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[Command] = deque()
        self._running: Command | None = None
        self._changed = threading.Condition()
        self._closed = False

    def put(self, command: Command) -> bool:
        """Let a command wait behind the others; `False` if there is no room, or it is closed."""
        with self._changed:
            if self._closed:
                return False
            last = next((each for each in reversed(self._waiting) if each.model == command.model), None)
            if last is not None and last.is_like(command):
                last.waiting += command.waiting
                return True
            if len(self._waiting) >= self._most and not command.by_itself:
                return False
            self._waiting.append(command)
            self._changed.notify_all()
            return True

    def take(self, seconds: float) -> Command | None:
        """The next command; `None` if none comes within this time, or it is closed."""
        with self._changed:
            if not self._waiting and not self._closed:
                self._changed.wait(seconds)
            self._running = self._waiting.popleft() if self._waiting and not self._closed else None
            return self._running

    def done(self) -> None:
        """The command that was taken is carried out."""
        with self._changed:
            self._running = None

    def after(self, command: Command) -> Command | None:
        """The next command about the model of one that was taken."""
        with self._changed:
            return next((each for each in self._waiting if each.model == command.model), None)

    def loads(self) -> set[str]:
        """The names of the models of which a load waits, or is carried out."""
        with self._changed:
            waiting = [*self._waiting] if self._running is None else [*self._waiting, self._running]
            return {each.name for each in waiting if each.verb == "load"}

    def close(self) -> list[Command]:
        """Accept no more; the commands that are left."""
        with self._changed:
            self._closed = True
            left = [*self._waiting]
            self._waiting.clear()
            self._changed.notify_all()
            return left

    @property
    def closed(self) -> bool:
        """Whether no more are accepted."""
        return self._closed
