"""The differences between a result and the expected one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from pipelines.data.data import Data
from pipelines.data.describing import described
from pipelines.values import BoundingBox, Image, Point
from pipelines.wire.json import value_to_plain

MOST: Final = 120
"""Characters of a value that are shown."""

Read = Callable[[object], Any]
"""Converts plain data of a case's file to a value."""


def differences(
    expected: Mapping[str, Any], got: Data, read: Read, *, tolerance: float, exact: bool = False
) -> list[str]:
    """The differences between the expected values and a result, a line for each value.

    Values that are not expected may be there unless `exact`. Numbers, also those in arrays, boxes and lists, may be off
    by `tolerance`, relative or absolute. A list may stand for an array.
    """
    lines: list[str] = []
    for key, value in expected.items():
        if key in got:
            lines += _different(key, value, got[key], read, tolerance)
        else:
            lines.append(f"{key}: is missing; there are {', '.join(got) or 'no values'}")
    if exact:
        lines += [f"{key}: is there, {_shown(got[key])}, and is not expected" for key in got if key not in expected]
    return lines


def _different(where: str, plain: Any, got: Any, read: Read, tolerance: float) -> Iterator[str] | list[str]:
    if isinstance(got, Data) and isinstance(plain, Mapping):
        return [f"{where}.{line}" for line in differences(plain, got, read, tolerance=tolerance, exact=True)]
    # In files, pictures, boxes and arrays have keys that begin with @; arrays may be plain lists as well.
    expected = read(plain) if isinstance(plain, Mapping) else plain
    if isinstance(got, np.ndarray):
        return _different_arrays(where, expected, got, tolerance)
    if isinstance(got, Image) or isinstance(expected, Image):
        same = isinstance(expected, Image) and isinstance(got, Image) and expected == got
        return [] if same else [_line(where, expected, got)]
    return [] if _same(_plain(expected), _plain(got), tolerance) else [_line(where, expected, got)]


def _different_arrays(where: str, expected: Any, got: np.ndarray[Any, Any], tolerance: float) -> list[str]:
    try:
        array = np.asarray(expected)
    except ValueError:
        return [_line(where, expected, got)]
    if array.shape != got.shape:
        return [f"{where}: expected an array {list(array.shape)}, got {described(got)}"]
    if array.dtype.kind not in "iufb":
        return [_line(where, expected, got)]
    wide, other = array.astype(np.float64), got.astype(np.float64)
    off = ~np.isclose(other, wide, rtol=tolerance, atol=tolerance, equal_nan=True)
    if not off.any():
        return []
    first = tuple(int(index) for index in np.argwhere(off)[0])
    place = f"[{', '.join(map(str, first))}]" if first else ""
    return [
        f"{where}: {int(off.sum()):,} of {got.size:,} elements differ, the first at {where}{place}: "
        f"expected {wide[first]:g}, got {other[first]:g}"
    ]


def _same(expected: Any, got: Any, tolerance: float) -> bool:
    if isinstance(expected, bool) or isinstance(got, bool):
        return expected is got
    if isinstance(expected, (int, float)) and isinstance(got, (int, float)):
        if math.isnan(expected) and math.isnan(got):
            return True
        return bool(expected == got or math.isclose(expected, got, rel_tol=tolerance, abs_tol=tolerance))
    if isinstance(expected, Mapping) and isinstance(got, Mapping):
        return expected.keys() == got.keys() and all(_same(expected[key], got[key], tolerance) for key in expected)
    if _is_list(expected) and _is_list(got):
        return len(expected) == len(got) and all(map(lambda a, b: _same(a, b, tolerance), expected, got))
    return bool(expected == got)


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _plain(value: Any) -> Any:
    if isinstance(value, (BoundingBox, Point)):
        return value_to_plain(value)
    if isinstance(value, Data):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value


def _line(where: str, expected: Any, got: Any) -> str:
    return f"{where}: expected {_shown(expected)}, got {_shown(got)}"


def _shown(value: Any) -> str:
    text = described(value) if isinstance(value, (np.ndarray, Image)) else repr(value)
    return text if len(text) <= MOST else f"{text[: MOST - 3]}..."
