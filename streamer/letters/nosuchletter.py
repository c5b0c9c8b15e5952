"""`NoSuchLetter`, by itself: the parent of workers knows it, and imports no more than it needs."""

from __future__ import annotations

from pipelines.errors import StreamerError


class NoSuchLetter(StreamerError):
    """There is no dead letter of this name, or not any more."""
