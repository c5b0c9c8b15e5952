"""The error of starting or looking for a broker."""

from __future__ import annotations

from pipelines.errors import StreamerError


class BrokerError(StreamerError):
    """A broker is not available, did not start, or ended by itself. The message carries the tail of its log.

    Args:
        message: What is wrong, with all details, and what to do next.
        reason: What is wrong in a few words, for a list of reasons; by default the first line of the message.
        remedy: What the user can do about it, as a command: "call again with a network"; empty if that is not known.
    """

    def __init__(self, message: str, *, reason: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message.partition("\n")[0]
        self.remedy = remedy
