"""The error of starting or looking for a broker."""

from __future__ import annotations

from pipelines.errors import StreamerError


class BrokerError(StreamerError):
    """A broker is not available, did not start, or ended by itself. The message carries the tail of its log."""
