"""A runner that keeps state for each stream of records, by lane, and gives each record its result at once."""

from __future__ import annotations

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

from pipelines.data.batch import Batch
from pipelines.data.data import Data
from pipelines.data.record import RecordContext
from pipelines.data.result import NONE_HELD, Result
from pipelines.runners.runner import RowRunner, StatefulRunner
from pipelines.runners.state.lastrecords import NO_RECORD
from pipelines.runners.video.laneclock import LaneClock

State = TypeVar("State")

MOST_CAMERAS: Final = 10_000
"""Most cameras whose state is kept."""
Camera: TypeAlias = tuple[Hashable, str, bytes | None]
"""Lane, topic and, with `by_key`, key."""


class LaneRunner(RowRunner, StatefulRunner, Generic[State]):
    """Rows one by one, each with the state of its camera. A row that fails leaves the state as it was.

    A camera is a topic of a lane, or a key of such a topic if several cameras share it. Its state is made with its
    first row and discarded when the lane ends: a camera that connects again begins anew. Beyond `MOST_CAMERAS` the
    state of the camera that was silent longest is discarded, since topics and keys may come from untrusted clients. No
    rows are held. The state ends with the process.
    """

    pure: ClassVar[bool] = False
    writes: ClassVar[bool] = False

    def __init__(self, frame_rate: float, *, by_key: bool) -> None:
        """`frame_rate`: frames a second of records without timestamps; `by_key`: each key is a camera of its own."""
        self._frame_rate = frame_rate
        self._by_key = by_key
        self._cameras: OrderedDict[Camera, tuple[State, LaneClock]] = OrderedDict()

    @abstractmethod
    def begin(self, record: RecordContext) -> State:
        """The state of a new camera, or of one that has connected again."""

    @abstractmethod
    def checked(self, data: Data) -> Any:
        """The values that `step` needs of a record. Raises if they cannot be used, before the lane's state changes."""

    @abstractmethod
    def step(self, data: Data, values: Any, state: State, now: float) -> Data | None:
        """The result of a record of which `checked` gave `values`, `now` seconds after the first of its camera."""

    def ended(self, state: State) -> None:
        """Called with the state of a camera whose connection has ended."""

    def run(self, data: Data) -> Data | None:
        values = self.checked(data)
        state, now = self.moved_on(data.record or NO_RECORD)
        return self.step(data, values, state, now)

    def moved_on(self, record: RecordContext) -> tuple[State, float]:
        """Count a record: the state of its camera, and the seconds since the camera's first record."""
        camera = record.lane, record.topic, record.key if self._by_key else None
        known = self._cameras.pop(camera, None)
        if known is None:
            known = self.begin(record), LaneClock(self._frame_rate)
            if len(self._cameras) >= MOST_CAMERAS:
                self.ended(self._cameras.popitem(last=False)[1][0])
        self._cameras[camera] = state, clock = known
        return state, clock.advance(record.timestamp)

    def tick(self, now: float) -> Result:
        return Result(Batch({}, 0, rows=NONE_HELD))

    def flush(self) -> Result:
        return Result(Batch({}, 0, rows=NONE_HELD))

    def forget(self, lanes: Iterable[Hashable]) -> None:
        gone = set(lanes)
        for camera in [key for key in self._cameras if key[0] in gone]:
            self.ended(self._cameras.pop(camera)[0])
