"""Errors of access to tensors."""

from __future__ import annotations

from pipelines.errors import DataError


class RankError(DataError, ValueError):
    """A call got more or fewer indices than it needs, or names an axis that the tensor lacks."""


class BoundsError(DataError, IndexError):
    """An index beyond an axis, or values of another number than there is room for. Nothing was changed."""


class ReadOnlyError(DataError, TypeError, AttributeError):
    """A write to memory that must not be written to; an `AttributeError` too, as views of such memory lack `put`."""


class ReleasedError(DataError, ValueError):
    """A view was used after its release."""
