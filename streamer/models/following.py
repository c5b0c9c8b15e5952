"""`Following`: opens new versions of a service's models beside the current one, and has them take over."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final

from pipelines.errors import StreamerError
from pipelines.executors.executor import Executor
from pipelines.executors.ports import Ports
from pipelines.executors.state.handover import differences
from pipelines.observe.meters import Reading
from pipelines.runners.models.model import Port
from streamer.models.carrying import check_state
from streamer.models.files import State
from streamer.models.giveback import trim
from streamer.models.lineup import Lineup
from streamer.models.settings import CURRENT
from streamer.models.version import Version

LEAVE: Final = 1.0
"""Seconds that a version that is being opened is waited for when the service ends."""
LONGEST_SHADOW: Final = 30.0
"""Seconds that closing an old version waits for a batch that a shadow runs on it."""
_OUTCOMES: Final = ("opened", "failed")

Opener = Callable[[str, State, int], list[Executor]]
"""Opens the pipeline of a variant with these files, as the opening of this number."""


class Following:
    """Looks for new files of the models in a thread of its own, and opens the pipeline with them there.

    The run thread sees versions that are ready as `offered`, takes them over between two batches by `take`, and gives
    back those that it no longer uses by `retire`. If a version cannot be opened, or its inputs or outputs are others,
    the one before stays in use; it is tried again when its files change.
    """

    def __init__(
        self,
        look: Callable[[], Mapping[str, State]],
        lineup: Lineup,
        opener: Opener,
        interval: float | None,
        wake: Callable[[], None],
        log: Any,
        *,
        discard: bool = False,
    ) -> None:
        """`look` gives the files that there are for each variant.

        `interval`: seconds between two looks; `None`: there are only those of `reload`. `wake` is called when versions
        are offered. `discard`: stateful steps that differ from those of the current version begin anew.
        """
        self.lineup = lineup
        self.offered: Lineup | None = None
        """Versions that are open and wait to be taken over."""
        self.failed: dict[str, Version] = {}
        """The versions that could not be opened, by variant, until others can."""
        self.outcomes: Counter[str] = Counter(dict.fromkeys(_OUTCOMES, 0))
        """How many versions were opened, and could not be."""
        self._files = look
        self._opener = opener
        self._interval = interval
        self._wake = wake
        self._discard = discard
        self._log = log
        # The first versions were opened before.
        self._openings = len(lineup.versions) - 1
        self._last: Mapping[str, State] = {}
        """What the look before saw that was new."""
        self._ended = False
        self._guard = threading.Lock()
        self._queue: SimpleQueue[Sequence[Version] | threading.Event | None] = SimpleQueue()
        """Versions to close; what to set after a look at once; `None`: the end."""
        self._thread = threading.Thread(target=self._run, name="models", daemon=True)

    @property
    def current(self) -> Version:
        """The version of the variant `current`."""
        return self.lineup.current

    @property
    def is_alive(self) -> bool:
        """Whether it looks for new files, or was asked to."""
        return self._thread.is_alive()

    def refuse(self, versions: Mapping[str, Version]) -> None:
        """Do not try these versions, by variant, before their files change. Before `start`."""
        self.failed.update(versions)
        for version in versions.values():
            self._tell(version, self.current)

    def start(self) -> None:
        """Begin to look, if looks have an interval."""
        if self._interval is not None:
            self._thread.start()

    def reload(self) -> threading.Event:
        """Look at once, and open what has changed without looking twice. Returns at once; from any thread.

        The event is set when what has changed is open, or could not be opened, and at once after `end`.
        """
        looked = threading.Event()
        with self._guard:
            if self._ended:
                looked.set()
                return looked
            if self._thread.ident is None:
                self._thread.start()
            # Within the guard, so that it is in front of what `end` puts there.
            self._queue.put(looked)
        return looked

    def take(self) -> Lineup:
        """The versions that were offered: they are in use from now on. For the run thread."""
        with self._guard:
            lineup, self.offered = self.offered, None
        assert lineup is not None
        self.lineup = lineup
        return lineup

    def retire(self, before: Lineup) -> None:
        """Close, in the other thread, what of these versions is not in use any more."""
        self._queue.put([version for version in before.versions if version not in self.lineup.versions])

    def end(self) -> None:
        """Look no more, and close versions that were not taken over.

        Returns within `LEAVE` seconds: a version that is being opened is closed once it is open.
        """
        with self._guard:
            self._ended = True
            offered, self.offered = self.offered, None
        if offered is not None:
            self._queue.put([version for version in offered.versions if version not in self.lineup.versions])
        self._queue.put(None)
        if self._thread.ident is not None:
            self._thread.join(LEAVE)

    @property
    def versions(self) -> list[Version]:
        """Those in use, and those that are to take over or could not be opened. From any thread."""
        offered = [] if self.offered is None else self.offered.versions
        return list(dict.fromkeys([*self.lineup.versions, *offered, *self.failed.values()]))

    def readings(self) -> Iterator[Reading]:
        """The metrics of versions."""
        outcomes = [((outcome,), count) for outcome, count in self.outcomes.items()]
        yield Reading("streamer_model_loads_total", "New versions of models.", "counter", ("outcome",), outcomes)
        label = [((self.current.label,), 1)]
        yield Reading("streamer_model_version_info", "The version of the models in use.", "gauge", ("version",), label)
        yield from self.lineup.readings()

    def _run(self) -> None:
        while True:
            try:
                versions = self._queue.get(timeout=self._interval)
            except Empty:
                versions = None if self._ended else self._looked()
            if versions is None:
                return
            if isinstance(versions, threading.Event):
                self._looked(now=True)
                versions.set()
            else:
                self._close(versions)

    def _looked(self, *, now: bool = False) -> Sequence[Version]:
        try:
            self._look(now=now)
        except Exception as error:  # noqa: BLE001 - the next look may succeed, and others wait for this thread
            self._log.warning("the files of the models cannot be looked at", error=f"{type(error).__name__}: {error}")
        return []

    def _look(self, *, now: bool = False) -> None:
        states = self._files()
        newest = self.offered or self.lineup
        new = {name: state for name, state in states.items() if state != newest.variants[name].files}
        # What could not be used may have gone again.
        self.failed = {name: version for name, version in self.failed.items() if name in new}
        new = {name: state for name, state in new.items() if not (name in self.failed and state == self._tried(name))}
        if not new or now or new == self._last:
            self._last = {}
        else:
            # It may still be being written: it counts if the next look sees the same.
            self._last, new = new, {}
        if new:
            self._open(new)

    def _tried(self, name: str) -> State:
        return self.failed[name].files

    def _open(self, states: Mapping[str, State]) -> None:
        newest = self.offered or self.lineup
        opened: dict[str, Version] = {}
        for name, state in states.items():
            version = self._kept(newest, name, state) or self._opened(name, state, newest)
            if version is not None:
                opened[name] = version
                self.failed.pop(name, None)
        if not opened:
            return
        lineup = newest.replacing(opened)
        with self._guard:
            ended = self._ended
            before, self.offered = self.offered, None if ended else lineup
        unused = [*(before.versions if before is not None else ()), *(lineup.versions if ended else ())]
        in_use = self.lineup.versions if ended else [*self.lineup.versions, *lineup.versions]
        self._close([version for version in dict.fromkeys(unused) if version not in in_use])
        if not ended:
            self._wake()

    def _kept(self, newest: Lineup, name: str, state: State) -> Version | None:
        """An older version that is open still, has these files, and can go on with the state of the newest."""
        if name != CURRENT:
            return None
        newer = newest.current.executors[0]
        return next(
            (
                version
                for version in newest.kept
                if version.files == state and not differences(version.executors[0], newer)
            ),
            None,
        )

    def _opened(self, name: str, state: State, newest: Lineup) -> Version | None:
        self._openings += 1
        before = newest.variants[name]
        version = Version(self._label(state, before), state)
        began = time.monotonic()
        try:
            version.executors = self._opener(name, state, self._openings)
            self._check(version, newest.current)
        except Exception as error:  # noqa: BLE001 - the current version goes on, whatever it is
            self._close([version])
            version.executors, version.state = (), "UNAVAILABLE"
            version.reason = str(error) if isinstance(error, StreamerError) else f"{type(error).__name__}: {error}"
            version.since = time.time()
            self.failed[name] = version
            self.outcomes["failed"] += 1
            self._tell(version, before)
            return None
        version.seconds, version.since = time.monotonic() - began, time.time()
        self.outcomes["opened"] += 1
        return version

    def _tell(self, version: Version, before: Version) -> None:
        self._log.error(
            "a new version cannot be used, the current one goes on until its files change",
            version=version.label,
            current=before.label,
            error=version.reason,
        )

    def _label(self, state: State, before: Version) -> str:
        if not state.label:
            return str(self._openings + 1)
        again = state.label == before.number
        return f"{state.label}.{self._openings}" if again else state.label

    def _check(self, version: Version, current: Version) -> None:
        check_state(version, current, discard=self._discard)
        try:
            check_ports(version, current)
        except StreamerError as error:
            raise StreamerError(f"{error}; restart the service with what reads and writes them") from error

    def _close(self, versions: Iterable[Version]) -> None:
        closed = 0
        for version in versions:
            if not version.turn.acquire(timeout=LONGEST_SHADOW):
                self._log.warning("an old version stays open, as the shadow still runs it", version=version.label)
                continue
            executors, version.executors = version.executors, ()
            version.turn.release()
            for executor in executors:
                closed += 1
                try:
                    executor.close()
                except Exception as error:  # noqa: BLE001 - the service does not use it any more
                    self._log.warning("an old version could not be closed properly", error=str(error))
        if closed:
            trim()


def check_ports(version: Version, current: Version) -> None:
    """Raise `StreamerError` if a version is known to have other inputs or outputs than the current one."""
    before, after = current.executors[0].ports(), version.executors[0].ports()
    if differ(before, after):
        raise StreamerError(
            f"it takes {_said(after.inputs)} and gives {_said(after.outputs)}, but version {current.label} "
            f"takes {_said(before.inputs)} and gives {_said(before.outputs)}"
        )


def differ(before: Ports, after: Ports) -> bool:
    """Whether inputs or outputs are known to be others. Lengths that are not fixed are all alike."""
    pairs = ((before.inputs, after.inputs), (before.outputs, after.outputs))
    return any(a is not None and b is not None and _shapes(a) != _shapes(b) for a, b in pairs)


def _shapes(ports: Sequence[Port]) -> set[tuple[object, ...]]:
    return {(port.name, port.dtype, _lengths(port)) for port in ports}


def _lengths(port: Port) -> tuple[int | None, ...]:
    return tuple(length if isinstance(length, int) else None for length in port.shape or ())


def _said(ports: Sequence[Port] | None) -> str:
    if not ports:
        return "anything" if ports is None else "nothing"
    return ", ".join(f"{port.name} {port.dtype} {list(_lengths(port))}".replace("None", "N") for port in ports)
