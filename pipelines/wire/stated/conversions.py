"""How texts and other plain values become numbers, booleans, images and so on: what is one, and what is none."""

from __future__ import annotations

import binascii
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from pipelines.values import Image
from pipelines.values.imageheader import FORMATS
from pipelines.values.native import INT64_MAX, INT64_MIN

StatedType = Literal["number", "integer", "boolean", "text", "bytes", "image"]
"""The types that can be stated."""
Decimal = Literal[".", ","]
"""The sign before the fraction of a number."""

BLANKS: Final = " \t\r\n"
"""What may stand around a number, an integer, a boolean and base64."""


def looks_like(text: str, decimal: Decimal) -> StatedType:
    """The type that a text shows: `integer`, `number`, `boolean` (`true` and `false`), else `text`."""
    text = text.strip(BLANKS)
    if text.lower() in ("true", "false"):
        return "boolean"
    if _INTEGER.fullmatch(text):
        return "integer"
    return "number" if _NUMBER.fullmatch(swapped(text) if decimal == "," else text) else "text"


def quick_numbers(texts: list[str]) -> list[float] | None:
    """The numbers of texts that all are finite ones; `None` if some are not, or have line breaks around them."""
    if not _LINES_OF_NUMBERS.fullmatch("\n".join([*texts, ""])):
        return None
    try:
        numbers = list(map(float, texts))
    except ValueError:
        # A text of several lines.
        return None
    return None if math.inf in map(abs, numbers) else numbers


def swapped(text: str) -> str:
    """The text with points for commas, and commas for points."""
    return text.translate(_SWAPPED)


class NoneError(ValueError):
    """The value is not of the type, for the reason that it says; another `ValueError` only says that it is not."""


def _number(text: str) -> float | None:
    text = text.strip(BLANKS)
    if not _NUMBER.fullmatch(text):
        raise ValueError
    number = float(text)
    if math.isinf(number) and "i" not in text.lower():
        raise NoneError("it is beyond the largest, 1.8e308")
    return None if math.isnan(number) else number


def _integer(text: str) -> int:
    text = text.strip(BLANKS)
    if not _INTEGER.fullmatch(text):
        raise ValueError
    digits = text.lstrip("+-0")
    # Python reads no integers of thousands of digits.
    number = int(digits or "0") if len(digits) < 20 else 1 << 64
    number = -number if text.startswith("-") else number
    if not INT64_MIN <= number <= INT64_MAX:
        raise NoneError("it does not fit in 64 bits; state the type number or text")
    return number


def _boolean(text: str) -> bool:
    value = _BOOLEANS.get(text.strip(BLANKS).lower())
    if value is None:
        raise NoneError("true, false, 1 or 0")
    return value


def _bytes(text: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        # Many tools break base64 into lines.
        return binascii.a2b_base64(text.translate(_WITHOUT_BLANKS), strict_mode=True)


def _image(text: str) -> Image:
    uri = _DATA_URI.match(text)
    try:
        content = _bytes(text[uri.end() :] if uri else text)
    except ValueError:
        raise NoneError("an image is base64 or a data URI (data:image/png;base64,...)") from None
    return _image_file(content)


def _image_file(content: bytes) -> Image:
    # Upright, as the codec `image` reads photos.
    image = Image(content, upright=True)
    if image.format is None:
        raise NoneError(f"its {len(content)} bytes are not a {FORMATS} file")
    return image


def _image_of(plain: Any) -> Image:
    if isinstance(plain, bytes):
        return _image_file(plain)
    if isinstance(plain, dict):
        if isinstance(plain.get("base64"), str):
            return _image(plain["base64"])
        if isinstance(plain.get("bytes"), bytes):
            return _image_file(plain["bytes"])
    raise ValueError


def _text_of(plain: Any) -> str:
    if isinstance(plain, bool):
        return "true" if plain else "false"
    if isinstance(plain, int):
        # Python writes no integers of thousands of digits; formats that can have them give their text.
        return str(plain)
    if isinstance(plain, float):
        return repr(plain)
    if isinstance(plain, bytes):
        return plain.decode()
    raise ValueError


def _none(plain: Any) -> Any:
    raise ValueError


def shown(plain: Any) -> str:
    """A plain value in an error."""
    if isinstance(plain, str):
        text = json.dumps(plain[: _MOST + 1], ensure_ascii=False)
        text = text if len(plain) <= _MOST else f'{json.dumps(plain[:_MOST], ensure_ascii=False)[:-1]}..."'
        # Half of a surrogate pair cannot be written.
        return text.encode(errors="backslashreplace").decode()
    if isinstance(plain, bytes):
        return f"a value of {len(plain)} bytes"
    if isinstance(plain, int) and not -(10**_MOST) < plain < 10**_MOST:
        return f"an integer of {plain.bit_length()} bits"
    if isinstance(plain, (bool, int, float)):
        return json.dumps(plain)
    if isinstance(plain, (list, dict)):
        return "a list" if isinstance(plain, list) else "an object"
    return f"a value of type {type(plain).__name__}"


_NUMBER: Final = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|inf(?:inity)?)", re.ASCII | re.IGNORECASE
)
_LINES_OF_NUMBERS: Final = re.compile(
    r"(?: *+[+-]?+(?:[0-9]++\.?+[0-9]*+|\.[0-9]++)(?:e[+-]?+[0-9]++)?+ *+\n)*+", re.ASCII | re.IGNORECASE
)
_INTEGER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DATA_URI: Final = re.compile(rf"[{BLANKS}]*data:[^,]{{0,200}};base64,", re.ASCII | re.IGNORECASE)
_BOOLEANS: Final[Mapping[str, bool]] = {"true": True, "false": False, "1": True, "0": False}
_SWAPPED: Final = str.maketrans(",.", ".,")
_WITHOUT_BLANKS: Final = str.maketrans("", "", BLANKS)
_MOST: Final = 40
"""Characters of a text, and digits of an integer, that an error shows."""

KEPT: Final[Mapping[StatedType, frozenset[type]]] = {
    "number": frozenset({int, float}),
    "integer": frozenset({int}),
    "boolean": frozenset({bool}),
    "text": frozenset({str}),
    "bytes": frozenset({bytes}),
    "image": frozenset(),
}
FROM_TEXT: Final[Mapping[StatedType, Callable[[str], Any]]] = {
    "number": _number,
    "integer": _integer,
    "boolean": _boolean,
    "text": str,
    "bytes": _bytes,
    "image": _image,
}
FROM_OTHERS: Final[Mapping[StatedType, Callable[[Any], Any]]] = {
    "number": _none,
    "integer": _none,
    "boolean": _none,
    "text": _text_of,
    "bytes": _none,
    "image": _image_of,
}
