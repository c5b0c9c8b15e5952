"""Colours by name, by numbers, and by chance."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from pipelines.errors import DefinitionError

Color: TypeAlias = tuple[int, int, int]
"""Blue, green, red: the order of an image's channels."""

NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "white": "FFFFFF",
        "silver": "C0C0C0",
        "gray": "808080",
        "black": "000000",
        "red": "FF0000",
        "maroon": "800000",
        "yellow": "FFFF00",
        "olive": "808000",
        "lime": "00FF00",
        "green": "008000",
        "aqua": "00FFFF",
        "teal": "008080",
        "blue": "0000FF",
        "navy": "000080",
        "fuchsia": "FF00FF",
        "purple": "800080",
    }
)
"""The colour names of HTML 4 as red, green, blue."""

LIME: Final[Color] = (0, 255, 0)
AQUA: Final[Color] = (255, 255, 0)
RED: Final[Color] = (0, 0, 255)
BLUE: Final[Color] = (255, 0, 0)


def color(text: str | None, default: Color) -> Color:
    """A colour by one of `NAMES` in any case, `rgb(128,0,255)` or `#8000FF`; the default for none.

    (Konduit Serving reads the digits after `#` as a decimal number.) Raises `DefinitionError` for any other text.
    """
    if text is None:
        return default
    digits = NAMES.get(text.lower()) or (text[1:] if text.startswith("#") else "")
    if re.fullmatch(r"[0-9a-fA-F]{6}", digits):
        red, green, blue = bytes.fromhex(digits)
        return blue, green, red
    if match := re.fullmatch(r"rgb\((\d{1,3}),(\d{1,3}),(\d{1,3})\)", text, re.IGNORECASE):
        red, green, blue = map(int, match.groups())
        if max(red, green, blue) <= 255:
            return blue, green, red
    raise DefinitionError(f'Invalid color: "{text}"; give rgb(255,0,0), #FF0000, or one of {", ".join(NAMES)}')


def random_colors() -> Iterator[Color]:
    """The same endless sequence of colours as Konduit Serving's: Java's generator with the seed 12345."""
    numbers = _java_random(12345, 255)
    while True:
        red, green, blue = next(numbers), next(numbers), next(numbers)
        yield blue, green, red


def _java_random(seed: int, bound: int) -> Iterator[int]:
    # The generator that the documentation of java.util.Random prescribes.
    state = (seed ^ 0x5DEECE66D) & ((1 << 48) - 1)
    while True:
        state = (state * 0x5DEECE66D + 0xB) & ((1 << 48) - 1)
        bits = state >> 17
        value = bits % bound
        if bits - value + bound - 1 < 1 << 31:
            yield value
