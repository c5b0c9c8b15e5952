"""Formats: the target of a conversion, in more detail than a class.

`ArrayFormat.parse("float32, C order, little-endian")`, `ImageFormat.parse("JPEG quality 80")`.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np

from pipelines.errors import DataError
from pipelines.values.ndarray import ByteOrder

Order: TypeAlias = Literal["C", "F"]
"""Which axis of an array varies fastest in memory: the last (C) or the first (F)."""

Channels: TypeAlias = Literal["BGR", "RGB", "BGRA", "RGBA", "GRAY"]
"""The channels on the last axis of an array of pixels, in order."""


@dataclass(frozen=True, slots=True)
class Format:
    """The name of a form, as a `Factory` declares it, and details. A detail that is `None` is not asked for."""

    form: str

    @property
    def details(self) -> dict[str, Any]:
        """The details that are asked for, by name."""
        named = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "form"}
        return {name: value for name, value in named.items() if value is not None}

    @classmethod
    @abstractmethod
    def parse(cls, text: str) -> Self:
        """The format that a text describes. Raises `DataError`."""

    def __str__(self) -> str:
        return ", ".join([self.form, *(f"{name} {value}" for name, value in self.details.items())])


@dataclass(frozen=True, slots=True)
class ArrayFormat(Format):
    """A form of arrays, by default numpy's, with element type, order of the elements and order of their bytes."""

    form: str = "numpy"
    dtype: np.dtype[Any] | None = None
    order: Order | None = None
    byte_order: ByteOrder | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a form from words in any order.

        A form (numpy if there is none), an element type as numpy names it, `C order` or `Fortran order`,
        `little-endian` or `big-endian`.

        Raises:
            DataError: Two words set the same detail.
        """
        details: dict[str, Any] = {}
        for word in _words(text):
            if word == "order":
                continue
            if word in _DTYPES:
                _put(details, "dtype", _dtype(word), text)
            elif word in _ORDERS:
                _put(details, "order", _ORDERS[word], text)
            elif word in _BYTE_ORDERS:
                _put(details, "byte_order", _BYTE_ORDERS[word], text)
            else:
                _put(details, "form", word, text)
        return cls(**details)


@dataclass(frozen=True, slots=True)
class ImageFormat(Format):
    """A form of images, by default numpy's, with the details that its converter knows."""

    QUALITY: ClassVar = range(101)
    COMPRESSION: ClassVar = range(10)

    form: str = "numpy"
    quality: int | None = None
    """Of a JPEG, 0 (small) to 100 (good); OpenCV takes 95 where none is given."""
    compression: int | None = None
    """Of a PNG, 0 (fast) to 9 (small)."""
    channels: Channels | None = None
    """Of a numpy array; BGR or gray, as the image is, where none are given."""

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("quality", self.quality, self.QUALITY),
            ("compression", self.compression, self.COMPRESSION),
        ):
            if value is not None and value not in allowed:
                raise DataError(f"an image's {name} is {allowed[0]} to {allowed[-1]}, not {value}")

    @classmethod
    def parse(cls, text: str) -> Self:
        """Words in any order: a form (numpy if there is none), `quality 80`, `compression 9`, `RGB` and the like.

        Raises `DataError` if two words set the same detail, and for a number out of range.
        """
        details: dict[str, Any] = {}
        words = iter(_words(text))
        for word in words:
            if word in ("quality", "compression"):
                number = next(words, "")
                if not number.isdecimal():
                    raise DataError(f'"{text}": {word} is followed by a number, as in "JPEG quality 80"')
                _put(details, word, int(number), text)
            elif word.upper() in _CHANNELS:
                _put(details, "channels", _CHANNELS[word.upper()], text)
            else:
                _put(details, "form", word, text)
        return cls(**details)


def _words(text: str) -> list[str]:
    return re.findall(r"[^\s,]+", text.lower())


def _put(details: dict[str, Any], name: str, value: Any, text: str) -> None:
    if name in details:
        raise DataError(f'"{text}" asks for both {details[name]} and {value}; say one {name.replace("_", " ")}')
    details[name] = value


def _dtype(name: str) -> np.dtype[Any]:
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise DataError("bfloat16 needs the package ml_dtypes: pip install ml_dtypes; or ask for float32") from None
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


_DTYPES = frozenset(
    "float16 float32 float64 bfloat16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split()  # noqa: SIM905
)
_ORDERS: dict[str, Order] = {"c": "C", "f": "F", "fortran": "F"}
_BYTE_ORDERS: dict[str, ByteOrder] = {
    "little-endian": "little",
    "little": "little",
    "big-endian": "big",
    "big": "big",
}
_CHANNELS: dict[str, Channels] = {
    "BGR": "BGR",
    "RGB": "RGB",
    "BGRA": "BGRA",
    "RGBA": "RGBA",
    "GRAY": "GRAY",
    "GREY": "GRAY",
}
