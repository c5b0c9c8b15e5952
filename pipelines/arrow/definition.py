"""`ShippedDefinition`: a pipeline's definition on its way to the processes that run it, and its fingerprint."""

from __future__ import annotations

import atexit
import hashlib
import os
import socket
import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeAlias

from pipelines.definitions.definition import load, loads
from pipelines.definitions.pipeline import Pipeline
from pipelines.errors import DISTRIBUTION, DefinitionError, StepError, StreamerError
from pipelines.executors.executor import Executor
from pipelines.executors.shared import Shared

_Key: TypeAlias = tuple[int, Hashable]
"""The process, and the definition."""

_SHIP = (
    "the definition and its models have to be there too: Spark copies them with `--files` or `spark.files` into the "
    "working directory of its workers, Ray with `runtime_env={'working_dir': ...}`; name them by relative paths then"
)

_executors: Final = Shared()
"""The open executors, by `_Key`. Each call that runs has a reference, and the process from the first call on."""
_held: Final[dict[_Key, Pipeline | None]] = {}
"""The executors of which processes have a reference. A pipeline that is known by its `id` is held, so that no other
gets the same."""
_holding: Final = threading.Lock()


class ShippedDefinition:
    """A definition by its path or by its text: it is pickled without models, and opened where it arrives.

    A relative path starts at the working directory of each process. The fingerprint, of the version of streamer and of
    the definition, is taken here and compared where the definition is opened.
    """

    def __init__(self, given: str | PathLike[str] | Pipeline) -> None:
        self._sent = False
        self._pipeline: Pipeline | None = None
        self._why_local = ""
        self._path = self._text = self._base = None
        if isinstance(given, Pipeline):
            self._pipeline = given
            self._base = None if given.base is None else str(given.base)
            try:
                self._text = given.to_json()
            except DefinitionError as error:
                self._why_local = str(error)
            self._digest = _digest(self._text or "")
        else:
            self._path = os.fspath(given)
            self._digest = _digest(load(self._path).to_json())
        self._version = _version()

    @property
    def sent(self) -> bool:
        """Whether it came from another process."""
        return self._sent

    @property
    def label(self) -> str:
        """The definition in messages: its path, or what it is."""
        return self._path or "the definition"

    def pipeline(self) -> Pipeline:
        """The pipeline. Raises `StreamerError` if it is not there, or not that of which the fingerprint was taken."""
        if self._version != _version():
            raise StreamerError(
                f"streamer {self._version} made this mapper, and streamer {_version()} runs here, on "
                f"{socket.gethostname()}: install the same version of {DISTRIBUTION} everywhere"
            )
        if self._pipeline is not None:
            return self._pipeline
        if self._path is None:
            return loads(self._text or "", self._base)
        if not Path(self._path).is_file():
            where = f"on {socket.gethostname()} in {Path.cwd()}"
            raise StreamerError(f"{self._path}: there is no such file {where}; {_SHIP}")
        pipeline = load(self._path)
        if _digest(pipeline.to_json()) != self._digest:
            raise StreamerError(
                f"{self._path} on {socket.gethostname()} is not the definition that this mapper was made of: "
                "ship it again, or make the mapper again if it was changed on purpose"
            )
        return pipeline

    def open(self) -> Executor:
        """An executor of its own. Raises `StreamerError`, with the way to ship files if it came from elsewhere."""
        pipeline = self.pipeline()
        try:
            return pipeline.open()
        except StepError as error:
            if not self._sent:
                raise
            where = f"on {socket.gethostname()} in {Path.cwd()}"
            raise StreamerError(f"{self.label} cannot be opened {where}: {error}; {_SHIP}") from error

    @contextmanager
    def opened(self) -> Iterator[Executor]:
        """The executor of this process, opened at the first call and shared by all mappers of the definition."""
        key = self._key()
        with _holding:
            executor = _executors.get(key, self.open, _close)
            if key not in _held:
                _held[key] = self._pipeline
                _executors.get(key, self.open, _close)
        try:
            yield executor
        finally:
            _executors.release(key)

    def close(self) -> None:
        """Close the executor of this process, when the last call that runs with it ends."""
        _let_go(self._key())

    def __getstate__(self) -> dict[str, Any]:
        if self._path is None and self._text is None:
            raise StreamerError(f"this pipeline cannot be sent to other processes: {self._why_local}")
        return {**self.__dict__, "_pipeline": None, "_sent": True}

    def _key(self) -> _Key:
        if self._path is None and self._text is None:
            return os.getpid(), id(self._pipeline)
        return os.getpid(), (None if self._path is None else Path(self._path).absolute(), self._base, self._digest)


def _close(executor: Executor) -> None:
    executor.close()


def _let_go(key: _Key) -> None:
    with _holding:
        if key in _held:
            del _held[key]
            _executors.release(key)


@atexit.register
def _let_go_of_all() -> None:
    # A process that was forked does not close what its parent opened: the threads are gone. One that a thread still
    # runs with stays open, as nobody waits for such a thread.
    for key in [key for key in _held if key[0] == os.getpid()]:
        _let_go(key)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _version() -> str:
    try:
        return version(DISTRIBUTION)
    except PackageNotFoundError:
        return "from a folder"
