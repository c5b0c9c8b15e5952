"""`Tensor`: one input or output as a message describes it; its data are elsewhere in the message, or a list."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from connectors.codecs.inference.datatypes import BYTES, WIDTHS, known_datatype
from pipelines.errors import WireError

MOST_AXES: Final = 30
_MOST_EMPTY: Final = 1 << 20
"""The most that the other lengths of a shape with a length of 0 may multiply to. Any other shape is checked against the
bytes that are there; this one needs none, and may still make a model work for so many samples."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """The head of a tensor."""

    named: str
    """For errors: `input "x"`."""
    name: str
    datatype: str
    shape: tuple[int, ...]
    count: int
    """Elements by its shape."""
    size: int | None = None
    """Bytes of its data in the binary part of the message; `None`: they are not there."""
    data: list[Any] | None = None
    """Its data, as JSON lists have them, nested or not. Where there is no size either, they were read before."""

    @staticmethod
    def checked(
        kind: str, name: str, datatype: object, shape: object, size: int | None = None, data: list[Any] | None = None
    ) -> Tensor:
        """The tensor, checked as far as it can be without its data. `kind` is `input` or `output`.

        Raises:
            WireError: An unknown datatype, lengths that are no lengths, or a size that does not fit them.
        """
        named = f'{kind} "{name}"'
        try:
            datatype = known_datatype(datatype)
        except WireError as error:
            raise WireError(f"{named}: {error}") from None
        lengths = _lengths(shape, named)
        count = math.prod(lengths)
        if size is not None:
            _check_size(named, datatype, lengths, count, size)
        return Tensor(named, name, datatype, lengths, count, size, data)

    def check_bytes(self, size: int) -> None:
        """Raise `WireError` unless so many bytes can be its data."""
        _check_size(self.named, self.datatype, self.shape, self.count, size)

    def __str__(self) -> str:
        return f"{self.name} {self.datatype} {list(self.shape)}"


def _lengths(shape: object, named: str) -> tuple[int, ...]:
    if not isinstance(shape, (list, tuple)):
        raise WireError(f"{named}: its shape is no list of lengths")
    if len(shape) > MOST_AXES:
        raise WireError(f"{named}: its shape has {len(shape)} axes; at most {MOST_AXES} can be read")
    for length in shape:
        if type(length) is not int:
            raise WireError(f"{named}: the shape {_short(shape)} holds {_short(length)}, which is no whole number")
        if length < 0:
            raise WireError(f"{named}: the shape {_short(shape)} holds a length below 0")
    if 0 in shape and math.prod(max(length, 1) for length in shape) > _MOST_EMPTY:
        raise WireError(f"{named}: the shape {_short(shape)} is too large for a tensor without elements")
    return tuple(shape)


def _check_size(named: str, datatype: str, shape: tuple[int, ...], count: int, size: int) -> None:
    if datatype == BYTES:
        if size < 4 * count:
            raise WireError(
                f"{named} is BYTES {list(shape)}, which are {4 * count} bytes or more, "
                f"as each element has a length of 4, not {size}"
            )
    elif size != count * WIDTHS[datatype]:
        raise WireError(f"{named} is {datatype} {list(shape)}, which are {count * WIDTHS[datatype]} bytes, not {size}")


def _short(value: object) -> str:
    text = repr(list(value) if isinstance(value, tuple) else value)
    return text if len(text) <= 60 else f"{text[:57]}..."
