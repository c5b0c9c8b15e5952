"""The errors of calls of `streamer.Client`."""

from __future__ import annotations

from pipelines.errors import StreamerError


class RequestError(StreamerError):
    """A request that has no result: the service answered with an error, or could not be asked.

    Attributes:
        status: The status of an answer over HTTP; `None` where nothing answered, and for answers over topics.
        step: The step of the pipeline that failed, where the answer names it; else empty.
    """

    def __init__(self, message: str, *, status: int | None = None, step: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.step = step


class RequestTimeout(RequestError, TimeoutError):
    """There was no result in time. The service may still work on the request."""
