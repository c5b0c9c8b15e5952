"""`Transport`: how a client's requests reach a service, and its answers come back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from concurrent.futures import Future

from pipelines import Data
from pipelines.executors.ports import Ports


class Transport(ABC):
    """A connection to one service. Its methods may be called by several threads at a time.

    Deadlines are seconds of `time.monotonic`. The class that calls it bounds the number of calls at a time.
    """

    pending: int
    """The most calls at a time."""

    @abstractmethod
    def open(self, deadline: float) -> None:
        """Connect, where that is done before the first call. Idempotent.

        Raises `RequestError`, and `MissingPackageError` without the client library.
        """

    @property
    def is_open(self) -> bool:
        """Whether `open` has nothing left to do."""
        return True

    @abstractmethod
    def submit(self, values: Data, deadline: float) -> Future[Data]:
        """Send a request.

        All errors of the request are those of the future: `RequestError`, and `DataError` for values that do not fit.
        """

    def call(self, values: Data, deadline: float) -> Data:
        """The result of one request. Raises `RequestError` and `DataError`."""
        return self.submit(values, deadline).result()

    def ports(self, deadline: float) -> Ports:
        """What the service takes and gives, where it can be asked. Raises `RequestError`."""
        return Ports()

    def trouble(self, deadline: float) -> str | None:
        """Why the service cannot be asked now, once it is open; `None` if it can, as far as that can be known."""
        return None

    @property
    def strangers(self) -> int:
        """Answers that belonged to no call that was waiting."""
        return 0

    @abstractmethod
    def close(self) -> None:
        """Disconnect; calls that are under way fail. Idempotent."""
