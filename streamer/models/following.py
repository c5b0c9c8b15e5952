"""`Following`: opens new versions of a service's models beside the current one, and has them take over."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Final

from pipelines.errors import StreamerError
from pipelines.executors.executor import Executor
from pipelines.executors.ports import Ports
from pipelines.observe.meters import Reading
from pipelines.runners.models.model import Port
from streamer.models.files import ModelFiles, State
from streamer.models.version import Version

LEAVE: Final = 1.0
"""Seconds that a version that is being opened is waited for when the service ends."""
_OUTCOMES: Final = ("opened", "failed")

Opener = Callable[[State, int], list[Executor]]
"""Opens the pipeline with these files, as the opening of this number."""


class Following:
    """Looks for new files of the models in a thread of its own, and opens the pipeline with them there.

    The run thread sees a version that is ready as `offered`, takes it over between two batches by `take`, and gives
    back what it no longer uses by `retire`. If a version cannot be opened, or its inputs or outputs are others, the
    current one stays in use; it is tried again when its files change.
    """

    def __init__(
        self, files: ModelFiles, current: Version, opener: Opener, interval: float, wake: Callable[[], None], log: Any
    ) -> None:
        """`interval`: seconds between two looks. `wake` is called when a version is offered."""
        self.current = current
        self.offered: Version | None = None
        """A version that is open and waits to be taken over."""
        self.failed: Version | None = None
        """The version that could not be opened, until another one can."""
        self.outcomes: Counter[str] = Counter(dict.fromkeys(_OUTCOMES, 0))
        """How many versions were opened, and could not be."""
        self._files = files
        self._opener = opener
        self._interval = interval
        self._wake = wake
        self._log = log
        self._openings = 0
        self._last: State | None = None
        """What the look before saw, if it was new."""
        self._ended = False
        self._guard = threading.Lock()
        self._retired: SimpleQueue[Sequence[Executor] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="models", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def take(self) -> Version:
        """The version that was offered: it is the current one from now on. For the run thread."""
        with self._guard:
            version, self.offered = self.offered, None
        assert version is not None
        self.current = version
        return version

    def retire(self, executors: Sequence[Executor]) -> None:
        """Close these, which nothing uses any more, in the other thread."""
        self._retired.put(executors)

    def end(self) -> None:
        """Look no more, and close a version that was not taken over.

        Returns within `LEAVE` seconds: a version that is being opened is closed once it is open.
        """
        with self._guard:
            self._ended = True
            version, self.offered = self.offered, None
        if version is not None:
            self._retired.put(version.executors)
        self._retired.put(None)
        self._thread.join(LEAVE)

    @property
    def versions(self) -> list[Version]:
        """The current version, and one that is to take over or could not be opened. From any thread."""
        return [self.current, *(each for each in (self.offered, self.failed) if each is not None)]

    def readings(self) -> Iterator[Reading]:
        """The metrics of versions."""
        outcomes = [((outcome,), count) for outcome, count in self.outcomes.items()]
        yield Reading("streamer_model_loads_total", "New versions of models.", "counter", ("outcome",), outcomes)
        label = [((self.current.label,), 1)]
        yield Reading("streamer_model_version_info", "The version of the models in use.", "gauge", ("version",), label)

    def _run(self) -> None:
        while True:
            try:
                executors = self._retired.get(timeout=self._interval)
            except Empty:
                try:
                    self._look()
                except OSError as error:
                    self._log.warning("the files of the models cannot be looked at", error=str(error))
                continue
            if executors is None:
                return
            self._close(executors)

    def _look(self) -> None:
        state = self._files.look()
        newest = self.offered or self.current
        if state == newest.files:
            # What could not be used has gone again.
            self._last = self.failed = None
        elif self.failed is not None and state == self.failed.files:
            self._last = None
        elif state != self._last:
            # It may still be being written: it counts if the next look sees the same.
            self._last = state
        else:
            self._last = None
            self._open(state)

    def _open(self, state: State) -> None:
        self._openings += 1
        version = Version(self._label(state), state)
        began = time.monotonic()
        try:
            version.executors = self._opener(state, self._openings)
            self._check(version)
        except Exception as error:  # noqa: BLE001 - the current version goes on, whatever it is
            self._close(version.executors)
            version.executors, version.state = (), "UNAVAILABLE"
            version.reason = str(error) if isinstance(error, StreamerError) else f"{type(error).__name__}: {error}"
            version.since = time.time()
            self.failed = version
            self.outcomes["failed"] += 1
            self._log.error(
                "a new version cannot be used, the current one goes on until its files change",
                version=version.label,
                current=self.current.label,
                error=version.reason,
            )
            return
        version.seconds, version.since = time.monotonic() - began, time.time()
        with self._guard:
            ended = self._ended
            before, self.offered = self.offered, None if ended else version
        self.failed = None
        self.outcomes["opened"] += 1
        if before is not None:
            self._close(before.executors)
        if ended:
            self._close(version.executors)
        else:
            self._wake()

    def _label(self, state: State) -> str:
        if not state.label:
            return str(self._openings + 1)
        again = state.label in {self.current.label, self.current.label.partition(".")[0]}
        return f"{state.label}.{self._openings}" if again else state.label

    def _check(self, version: Version) -> None:
        old, new = self.current.executors[0], version.executors[0]
        if new.stateful:
            raise StreamerError("its steps hold records or state, which would be lost; restart the service")
        before, after = old.ports(), new.ports()
        if differ(before, after):
            raise StreamerError(
                f"it takes {_said(after.inputs)} and gives {_said(after.outputs)}, but version {self.current.label} "
                f"takes {_said(before.inputs)} and gives {_said(before.outputs)}; restart the service with what reads "
                "and writes them"
            )

    def _close(self, executors: Iterable[Executor]) -> None:
        for executor in executors:
            try:
                executor.close()
            except Exception as error:  # noqa: BLE001 - the service does not use it any more
                self._log.warning("an old version could not be closed properly", error=str(error))
        _give_back()


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


def _give_back() -> None:
    """Give freed memory back to the system: glibc would keep what models of other sizes cannot use."""
    if sys.platform != "linux":
        return
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
