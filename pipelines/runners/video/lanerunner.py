"""A step that keeps what it knows of each stream of records, by lane, and gives each record its result at once."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Hashable, Iterable
from typing import Any, ClassVar, Final, Generic, TypeVar

from pipelines.data.batch import Batch
from pipelines.data.data import Data
from pipelines.data.record import RecordContext
from pipelines.data.result import NONE_HELD, Result
from pipelines.errors import StreamerError
from pipelines.runners.runner import RowRunner, StatefulRunner
from pipelines.runners.video.laneclock import LaneClock

State = TypeVar("State")

NO_RECORD: Final = RecordContext("", "")
"""What rows that came from no bus have for a record: they are one stream."""


class LaneRunner(RowRunner, StatefulRunner, Generic[State]):
    """Rows one by one, each with the state of its lane. A row that fails leaves the state as it was.

    A lane's state is made with its first row and discarded when the lane ends: a camera that connects again begins
    anew. Nothing is held, and nothing of a lane outlives the process; `saved` is what does.
    """

    pure: ClassVar[bool] = False
    writes: ClassVar[bool] = False

    def __init__(self, frame_rate: float) -> None:
        """`frame_rate`: frames a second of records without timestamps."""
        self._frame_rate = frame_rate
        self._lanes: dict[Hashable, tuple[State, LaneClock]] = {}

    @abstractmethod
    def begin(self, record: RecordContext) -> State:
        """The state of a new lane."""

    @abstractmethod
    def checked(self, data: Data) -> Any:
        """What is needed of a record. Raises for one that cannot be used, before the lane's state changes."""

    @abstractmethod
    def step(self, data: Data, found: Any, state: State, now: float) -> Data | None:
        """The result of a record of which `checked` gave `found`, `now` seconds after the first of its lane."""

    def saved(self) -> dict[str, Any]:
        """What outlives the process, as JSON."""
        return {}

    def load(self, saved: dict[str, Any]) -> None:
        """Take over what `saved` gave."""

    def ended(self, state: State) -> None:
        """The lane with this state has ended."""

    def run(self, data: Data) -> Data | None:
        record = data.record or NO_RECORD
        found = self.checked(data)
        if record.lane not in self._lanes:
            self._lanes[record.lane] = self.begin(record), LaneClock(self._frame_rate)
        state, clock = self._lanes[record.lane]
        return self.step(data, found, state, clock.advance(record.timestamp))

    def tick(self, now: float) -> Result:
        return Result(Batch({}, 0, rows=NONE_HELD))

    def flush(self) -> Result:
        return Result(Batch({}, 0, rows=NONE_HELD))

    def forget(self, lanes: Iterable[Hashable]) -> None:
        for lane in lanes:
            if lane in self._lanes:
                self.ended(self._lanes.pop(lane)[0])

    def snapshot(self) -> bytes:
        return json.dumps(self.saved()).encode()

    def restore(self, state: bytes) -> None:
        try:
            self.load(json.loads(state))
        except (ValueError, KeyError, TypeError) as error:
            name = type(self).__name__
            raise StreamerError(f"the saved state of {name} is damaged: {error}; start without it") from None
