"""Which box is which track: the assignment that overlaps most (Jonker-Volgenant, by `lap`)."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.errors import MissingPackageError

Doubles: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]


def solver() -> Any:
    """The module `lap`. `MissingPackageError` if it is not installed."""
    try:
        import lap
    except ImportError:
        raise MissingPackageError("lap", "camera", "telling which box is which track") from None
    return lap


def overlaps(a: Doubles, b: Doubles) -> Doubles:
    """Intersection over union of boxes `x1, y1, x2, y2`: `(N, 4)` and `(M, 4)` give `(N, M)`; 0 without area."""
    left_top = np.maximum(a[:, np.newaxis, :2], b[np.newaxis, :, :2])
    right_bottom = np.minimum(a[:, np.newaxis, 2:], b[np.newaxis, :, 2:])
    shared = np.prod(np.maximum(right_bottom - left_top, 0.0), axis=2)
    union = _area(a)[:, np.newaxis] + _area(b)[np.newaxis, :] - shared
    overlap: Doubles = np.divide(shared, union, out=np.zeros_like(shared), where=union > 0)
    return overlap


def assigned(overlap: Doubles, least: float) -> tuple[Ints, Ints]:
    """Pairs of rows and columns of `overlap` `(N, M)` with the greatest sum, each of them at least `least`."""
    none = np.zeros(0, np.int64)
    if not overlap.size or overlap.max() < least:
        return none, none
    columns = solver().lapjv(1.0 - overlap, extend_cost=True, cost_limit=1.0 - least, return_cost=False)[0]
    rows = np.flatnonzero(columns >= 0)
    columns = columns[rows].astype(np.int64)
    enough = overlap[rows, columns] >= least
    return rows[enough], columns[enough]


def _area(boxes: Doubles) -> Doubles:
    area: Doubles = np.prod(np.maximum(boxes[:, 2:] - boxes[:, :2], 0.0), axis=1)
    return area
