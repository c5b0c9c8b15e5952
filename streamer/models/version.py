"""`Version`: one opening of a service's pipeline."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from pipelines.executors.executor import Executor
from streamer.models.files import State


@dataclass(slots=True, eq=False)
class Version:
    """A pipeline that is open, or could not be opened."""

    label: str
    """The number of its version folder, and how often models were opened before if that folder was opened before, as
    in `4.6`; of models without such folders 1, 2, ... as they are opened."""
    files: State
    """The files that it was opened with."""
    executors: Sequence[Executor] = ()
    """As many as `limits.parallel`."""
    state: Literal["READY", "REJECTED", "UNAVAILABLE"] = "READY"
    """`REJECTED`: it is open, and a canary has found it worse, so that only requests that name it reach it."""
    reason: str = ""
    """Why it is rejected, or not to be had."""
    seconds: float = 0.0
    """How long it took to open."""
    turn: threading.Lock = field(default_factory=threading.Lock)
    """Held by a shadow that runs it, and while it is closed."""
    since: float = field(default_factory=time.time)
    """When it was opened, or could not be, in seconds since 1970."""

    @property
    def number(self) -> str:
        """The label without what tells apart the contents that a version folder has had: `4` of `4.6`."""
        return self.label.partition(".")[0]

    def document(self) -> dict[str, object]:
        """The same for people and programs, as JSON."""
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.since))
        document: dict[str, object] = {"version": self.label, "state": self.state, "since": since}
        document |= {"reason": self.reason} if self.reason else {"seconds": round(self.seconds, 3)}
        return document
