"""Boxes and points, usually as fractions of an image: (0, 0) is its top left corner, (1, 1) the bottom right."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NoReturn

from pipelines.errors import DataError, ValueNotFoundError, WrongTypeError

TOLERANCE = 1e-5
"""Coordinates and probabilities that differ by less are equal, as in Konduit Serving."""


class BoundingBox:
    """A rectangle with an optional label and probability, kept in the form in which it was made.

    Made by `BoundingBox.center(cx, cy, h, w)` or `BoundingBox.corners(x1, x2, y1, y2)` (mind the order: height
    before width, both x before both y), or by keyword: `BoundingBox(x1=0, x2=1, y1=0, y2=1, label="cat")`.
    Fractions or pixels; of the coordinates nothing is checked. Raises `WrongTypeError` for a label that is not a
    string. Either form answers `x1 x2 y1 y2 cx cy width height`.
    Two boxes are equal if their corners and probabilities agree within 1e-5 and their labels are the same.
    """

    __slots__ = ("_a", "_b", "_c", "_d", "form", "label", "narrow", "probability")

    form: Literal["CHW", "XY"]
    """`"CHW"` for centre, height and width; `"XY"` for corners."""
    label: str | None
    probability: float | None
    narrow: bool
    """Whether numbers of it may be those of float32: these are written as text with the digits that they have there,
    0.1, not 0.10000000149011612. Boxes that differ in this alone are equal."""

    def __init__(
        self,
        *,
        x1: float | None = None,
        x2: float | None = None,
        y1: float | None = None,
        y2: float | None = None,
        cx: float | None = None,
        cy: float | None = None,
        h: float | None = None,
        w: float | None = None,
        label: str | None = None,
        probability: float | None = None,
    ) -> None:
        corners, center = (x1, x2, y1, y2), (cx, cy, h, w)
        if None not in corners and center == (None,) * 4:
            self._set("XY", corners, label, probability)
        elif None not in center and corners == (None,) * 4:
            self._set("CHW", center, label, probability)
        else:
            raise DataError("a BoundingBox needs either x1, x2, y1 and y2, or cx, cy, h and w")

    @classmethod
    def center(
        cls,
        cx: float,
        cy: float,
        h: float,
        w: float,
        label: str | None = None,
        probability: float | None = None,
    ) -> BoundingBox:
        """A box by its centre, height and width."""
        box = cls.__new__(cls)
        box._set("CHW", (cx, cy, h, w), label, probability)
        return box

    @classmethod
    def corners(
        cls,
        x1: float,
        x2: float,
        y1: float,
        y2: float,
        label: str | None = None,
        probability: float | None = None,
    ) -> BoundingBox:
        """A box by its left, right, top and bottom edge."""
        box = cls.__new__(cls)
        box._set("XY", (x1, x2, y1, y2), label, probability)
        return box

    def copy(self) -> BoundingBox:
        """Another box like this one."""
        box = BoundingBox.__new__(BoundingBox)
        box.form = self.form
        box._a, box._b, box._c, box._d = self._a, self._b, self._c, self._d
        box.label = self.label
        box.probability = self.probability
        box.narrow = self.narrow
        return box

    def _set(
        self,
        form: Literal["CHW", "XY"],
        numbers: tuple[float | None, float | None, float | None, float | None],
        label: str | None,
        probability: float | None,
    ) -> None:
        a, b, c, d = numbers
        self.form = form
        self._a = float(a)  # type: ignore[arg-type]
        self._b = float(b)  # type: ignore[arg-type]
        self._c = float(c)  # type: ignore[arg-type]
        self._d = float(d)  # type: ignore[arg-type]
        self.label = label if label is None or isinstance(label, str) else _no_label(label)
        self.probability = None if probability is None else float(probability)
        self.narrow = False

    @property
    def numbers(self) -> tuple[float, float, float, float]:
        """The four numbers the box was made of: `cx, cy, h, w` or `x1, x2, y1, y2`, by its `form`."""
        return self._a, self._b, self._c, self._d

    @property
    def x1(self) -> float:
        """Left edge."""
        return self._a if self.form == "XY" else self._a - self._d / 2

    @property
    def x2(self) -> float:
        """Right edge."""
        return self._b if self.form == "XY" else self._a + self._d / 2

    @property
    def y1(self) -> float:
        """Top edge."""
        return self._c if self.form == "XY" else self._b - self._c / 2

    @property
    def y2(self) -> float:
        """Bottom edge."""
        return self._d if self.form == "XY" else self._b + self._c / 2

    @property
    def cx(self) -> float:
        """Horizontal centre."""
        return (self._a + self._b) / 2 if self.form == "XY" else self._a

    @property
    def cy(self) -> float:
        """Vertical centre."""
        return (self._c + self._d) / 2 if self.form == "XY" else self._b

    @property
    def width(self) -> float:
        """Distance of the left and right edges, never negative."""
        return abs(self._b - self._a) if self.form == "XY" else abs(self._d)

    @property
    def height(self) -> float:
        """Distance of the top and bottom edges, never negative."""
        return abs(self._d - self._c) if self.form == "XY" else abs(self._c)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BoundingBox):
            return NotImplemented
        return (
            _close(self.x1, other.x1)
            and _close(self.x2, other.x2)
            and _close(self.y1, other.y1)
            and _close(self.y2, other.y2)
            and self.label == other.label
            and _same_probability(self.probability, other.probability)
        )

    # Equality within a tolerance has no hash that agrees with it.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        names = ("x1", "x2", "y1", "y2") if self.form == "XY" else ("cx", "cy", "h", "w")
        parts = [f"{name}={number:g}" for name, number in zip(names, self.numbers, strict=True)]
        return f"BoundingBox({', '.join(parts + _label_parts(self.label, self.probability))})"


class Point:
    """A point of one or more coordinates with an optional label and probability: `Point([0.5, 0.25], label="nose")`.

    Raises `DataError` without a coordinate, `WrongTypeError` for a label that is not a string.
    Two points are equal if they have the same number of coordinates, these and the probabilities agree
    within 1e-5, and their labels are the same.
    """

    __slots__ = ("coords", "label", "probability")

    coords: tuple[float, ...]
    label: str | None
    probability: float | None

    def __init__(self, coords: Iterable[float], label: str | None = None, probability: float | None = None) -> None:
        self.coords = tuple(map(float, coords))
        if not self.coords:
            raise DataError("a Point needs at least one coordinate")
        self.label = label if label is None or isinstance(label, str) else _no_label(label)
        self.probability = None if probability is None else float(probability)

    def copy(self) -> Point:
        """Another point like this one."""
        point = Point.__new__(Point)
        point.coords = self.coords
        point.label = self.label
        point.probability = self.probability
        return point

    @property
    def dimensions(self) -> int:
        """How many coordinates the point has."""
        return len(self.coords)

    @property
    def x(self) -> float:
        """First coordinate."""
        return self._coordinate(0)

    @property
    def y(self) -> float:
        """Second coordinate; `ValueNotFoundError` if there is none."""
        return self._coordinate(1)

    @property
    def z(self) -> float:
        """Third coordinate; `ValueNotFoundError` if there is none."""
        return self._coordinate(2)

    def to_absolute(self, *sizes: float) -> Point:
        """The point in units of `sizes` (width, height, ... in pixels), one for each coordinate.

        A point with all coordinates in [0, 1] is relative and is scaled; any other is absolute already and comes
        back as it is. (Konduit Serving looks at the first coordinate only.)
        """
        if not all(0.0 <= coordinate <= 1.0 for coordinate in self.coords):
            return self
        if len(sizes) != len(self.coords):
            raise DataError(f"a point of {len(self.coords)} coordinates needs as many sizes, not {len(sizes)}")
        scaled = [coordinate * size for coordinate, size in zip(self.coords, sizes, strict=True)]
        return Point(scaled, self.label, self.probability)

    def _coordinate(self, index: int) -> float:
        if index >= len(self.coords):
            raise ValueNotFoundError(f"a point of {len(self.coords)} coordinates has no {'xyz'[index]}")
        return self.coords[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Point):
            return NotImplemented
        return (
            len(self.coords) == len(other.coords)
            and all(map(_close, self.coords, other.coords))
            and self.label == other.label
            and _same_probability(self.probability, other.probability)
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        coords = ", ".join(f"{coordinate:g}" for coordinate in self.coords)
        return f"Point({', '.join([f'[{coords}]', *_label_parts(self.label, self.probability)])})"


def _no_label(label: object) -> NoReturn:
    raise WrongTypeError(f"a label must be a string, got {label!r}; str(...) makes one of a number")


def _close(a: float, b: float) -> bool:
    # Equal infinities have no difference to compare; NaN equals NaN, as elsewhere in a `Data`.
    return a == b or abs(a - b) < TOLERANCE or (a != a and b != b)


def _same_probability(a: float | None, b: float | None) -> bool:
    if a is None or b is None:
        return a is b
    return _close(a, b)


def _label_parts(label: str | None, probability: float | None) -> list[str]:
    parts = [] if label is None else [f"label={label!r}"]
    return parts if probability is None else [*parts, f"probability={probability:g}"]
