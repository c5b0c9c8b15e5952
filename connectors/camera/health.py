"""`Health`: the state and the counters of one camera."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, Protocol, runtime_checkable

from connectors.camera.waiting import Cause

_HOUR: Final = 3600.0
_MOST: Final = 10_000
_RATE_OVER: Final = 5.0


class State(Enum):
    """The state of a camera."""

    CONNECTING = "connecting"
    LIVE = "live"
    """Pictures arrive."""
    STALLED = "stalled"
    """The connection is up, but no pictures come."""
    BACKOFF = "backoff"
    """It waits before it connects again."""
    ENDED = "ended"
    """A file or recording was read to its end."""
    FAILED = "failed"
    """A file or recording cannot be read; it is not tried again."""


@runtime_checkable
class TellsCameras(Protocol):
    """A source that reports the health of its cameras."""

    def cameras(self) -> Mapping[str, Any]:
        """`Health.as_json` of each camera, by its name. Any thread may call it."""


class Health:
    """Counts and states of one camera. The camera's thread writes them, any thread reads them."""

    def __init__(self, stall: float) -> None:
        self.state = State.CONNECTING
        self.reason: str | None = None
        """Why it is not live; `None` if it is."""
        self.since = time.time()
        self.pictures = 0
        """Pictures that were decoded."""
        self.delivered = 0
        """Pictures that became records."""
        self.drops: Counter[Cause] = Counter()
        self.connections = 0
        """Connections on which a picture came."""
        self.skew: float | None = None
        """Seconds by which the receipt of the last picture is after its time by the camera's clock."""
        self.clock_believed: bool | None = None
        """Whether timestamps are of the camera's clock; `None`: it has not told its time."""
        self.waits_until: float | None = None
        """When the next picture of a recording in real time is due, in seconds since 1970, if there is a long pause in
        it."""
        self.codec = ""
        self.size = (0, 0)
        self.reconnects = 0
        self.stalls = 0
        self.stall = stall
        """Seconds without a picture after which it is stalled; 0: never."""
        self._last = 0.0
        self._recent: deque[float] = deque(maxlen=1000)
        self._reconnected: deque[float] = deque(maxlen=_MOST)
        self._stalled: deque[float] = deque(maxlen=_MOST)

    def becomes(self, state: State, reason: str | None = None) -> None:
        """Note a state. `reason` stays that of the last trouble until the camera is live."""
        if state is State.STALLED:
            self.stalls += 1
            self._stalled.append(time.monotonic())
        if state is not self.state:
            self.since = time.time()
        self.state = state
        if state is State.LIVE:
            self.reason = None
        elif reason is not None:
            self.reason = reason

    def connected(self, again: bool) -> None:
        """Count a connection that gave its first picture; `again`: a reconnect."""
        self.connections += 1
        if again:
            self.reconnects += 1
            self._reconnected.append(time.monotonic())

    def picture(self) -> None:
        """Count a decoded picture."""
        self.pictures += 1
        self._last = time.monotonic()
        self._recent.append(self._last)

    def drop(self, cause: Cause, count: int = 1) -> None:
        """Count dropped pictures."""
        self.drops[cause] += count

    @property
    def now(self) -> State:
        """The present state: stalled if no picture has come for too long, also while the camera's thread still waits in
        libav."""
        if self.state is State.LIVE and self.stall and time.monotonic() - self._last > self.stall:
            return State.STALLED
        return self.state

    @property
    def fps(self) -> float:
        """Pictures a second, over the last five seconds."""
        since = time.monotonic() - _RATE_OVER
        times = [at for at in self._recent.copy() if at >= since]
        if len(times) < 2:
            return 0.0
        span = times[-1] - times[0]
        # Once they stop, the rate falls with the time that has passed since.
        late = max(0.0, time.monotonic() - times[-1] - span / (len(times) - 1))
        return (len(times) - 1) / max(span + late, 1e-3)

    @property
    def grade(self) -> str:
        """In a word: `good`, `fair` (up to three stalls or reconnects in the last hour), `poor`, or `down`."""
        if self.now is not State.LIVE:
            return "done" if self.state is State.ENDED else "down"
        troubles = _in_last_hour(self._reconnected) + _in_last_hour(self._stalled)
        return "good" if not troubles else "fair" if troubles <= 3 else "poor"

    def as_json(self) -> Mapping[str, Any]:
        """The state and all counters, as JSON values."""
        return {
            "state": self.now.value,
            "grade": self.grade,
            "reason": self.reason,
            "since": round(self.since, 3),
            "fps": round(self.fps, 2),
            "codec": self.codec,
            "size": "x".join(map(str, self.size)),
            "last_picture_seconds": round(time.monotonic() - self._last, 1) if self.pictures else None,
            "pictures": self.pictures,
            "delivered": self.delivered,
            "drops": dict(self.drops),
            "reconnects_last_hour": _in_last_hour(self._reconnected),
            "stalls_last_hour": _in_last_hour(self._stalled),
            "clock": {None: "receipt", True: "camera", False: "not believed"}[self.clock_believed],
            "waits_until": None if self.waits_until is None else round(self.waits_until, 3),
            "skew_seconds": None if self.skew is None else round(self.skew, 3),
        }


def _in_last_hour(times: deque[float]) -> int:
    since = time.monotonic() - _HOUR
    return sum(at >= since for at in times.copy())
