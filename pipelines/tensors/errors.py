"""What can be wrong with an access to a tensor."""

from __future__ import annotations

from pipelines.errors import DataError


class RankError(DataError, ValueError):
    """A tensor was asked with more or fewer indices than the call needs, or for an axis that it has not got."""


class BoundsError(DataError, IndexError):
    """An index beyond an axis, or values of another number than there is room for. Nothing was changed."""


class ReadOnlyError(DataError, TypeError):
    """A write to memory that must not be written to."""


class ReleasedError(DataError, ValueError):
    """A view was used after its release."""
