"""Boxes and points as fields of a configuration, in the form of Data's JSON."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from pipelines.steps.config import Config, Spelling
from pipelines.values import BoundingBox, Point


class PointConfig(Config):
    """A point in a definition; a `Point` is read too."""

    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    coords: Annotated[tuple[float, ...], Field(min_length=1), Spelling(also=("@Coords",))]
    """x, y, ..."""
    label: str | None = None
    """The class of the object at the point."""
    probability: float | None = None
    """How sure that is, 0 to 1."""

    @property
    def value(self) -> Point:
        """The point."""
        return Point(self.coords, self.label, self.probability)


class BoxConfig(Config):
    """A box in a definition, by its corners or by its centre and size; a `BoundingBox` is read too."""

    x1: Annotated[float | None, Field(alias="@x1"), Spelling(yaml="@x1")] = None
    """Left edge."""
    x2: Annotated[float | None, Field(alias="@x2"), Spelling(yaml="@x2")] = None
    """Right edge."""
    y1: Annotated[float | None, Field(alias="@y1"), Spelling(yaml="@y1")] = None
    """Top edge."""
    y2: Annotated[float | None, Field(alias="@y2"), Spelling(yaml="@y2")] = None
    """Bottom edge."""
    cx: Annotated[float | None, Field(alias="@cx"), Spelling(yaml="@cx")] = None
    """Centre, from the left; with `@cy`, `@h` and `@w` instead of the edges."""
    cy: Annotated[float | None, Field(alias="@cy"), Spelling(yaml="@cy")] = None
    """Centre, from the top."""
    h: Annotated[float | None, Field(alias="@h"), Spelling(yaml="@h")] = None
    """Height."""
    w: Annotated[float | None, Field(alias="@w"), Spelling(yaml="@w")] = None
    """Width."""
    label: str | None = None
    """The class of the object in the box."""
    probability: float | None = None
    """How sure that is, 0 to 1."""

    @model_validator(mode="after")
    def _check_form(self) -> BoxConfig:
        corners = (self.x1, self.x2, self.y1, self.y2)
        center = (self.cx, self.cy, self.h, self.w)
        if (None in corners) == (None in center) or (corners != (None,) * 4 and center != (None,) * 4):
            raise ValueError("a box needs either @x1, @x2, @y1 and @y2, or @cx, @cy, @h and @w")
        return self

    @property
    def value(self) -> BoundingBox:
        """The box."""
        return BoundingBox(**{name: getattr(self, name) for name in type(self).model_fields})


def _of_point(value: Any) -> Any:
    if not isinstance(value, Point):
        return value
    return PointConfig(coords=value.coords, label=value.label, probability=value.probability)


def _of_box(value: Any) -> Any:
    if not isinstance(value, BoundingBox):
        return value
    names = ("x1", "x2", "y1", "y2") if value.form == "XY" else ("cx", "cy", "h", "w")
    numbers = dict(zip(names, value.numbers, strict=True))
    return BoxConfig(label=value.label, probability=value.probability, **numbers)


PointField = Annotated[PointConfig, BeforeValidator(_of_point)]
"""A field that takes a `Point` or its JSON form."""

BoxField = Annotated[BoxConfig, BeforeValidator(_of_box)]
"""A field that takes a `BoundingBox` or its JSON form."""
