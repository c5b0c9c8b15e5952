"""`Stated`, the type that a codec states for the values of a key (`types: {temp: number}`), the same for all codecs.

Values are plain ones, as a parser of JSON, MessagePack or CSV gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from pipelines.errors import WireError
from pipelines.wire.hints import nul_found
from pipelines.wire.stated.conversions import (
    FROM_OTHERS,
    FROM_TEXT,
    KEPT,
    Decimal,
    NoneError,
    StatedType,
    looks_like,
    quick_numbers,
    shown,
    swapped,
)

D = TypeVar("D")


@dataclass(frozen=True, slots=True)
class Stated:
    """The type of the values of one key."""

    key: str
    kind: StatedType
    decimal: Decimal | None = None
    """The sign before the fraction of numbers in texts; `None`: a point, and the codec has no option for it."""

    @property
    def kept(self) -> frozenset[type]:
        """The classes of plain values that are of this type already: an integer is a number, too."""
        return KEPT[self.kind]

    def quickly(self, plain: list[Any]) -> list[Any] | None:
        """The values of a column, none of them `None`, if they are all of this type, or all plain texts of numbers.

        `None` for any others: each of them is to be looked at.
        """
        kinds = set(map(type, plain))
        if kinds <= self.kept:
            return plain
        if self.kind != "number" or kinds != {str} or self.decimal == ",":
            return None
        return quick_numbers(plain)

    def converted(self, plain: Any) -> Any:
        """A plain value that is of none of the classes `kept`, and not `None`, as a value of this type.

        Returns:
            `None` for a value that is missing: the number NaN.

        Raises:
            WireError: It is none, with its key: `temp: "on" is no number`.
        """
        try:
            if isinstance(plain, str):
                is_swapped = self.decimal == "," and self.kind == "number"
                return FROM_TEXT[self.kind](swapped(plain) if is_swapped else plain)
            return FROM_OTHERS[self.kind](plain)
        except NoneError as error:
            why = f": {error}"
        except ValueError:
            why = self._hint(plain)
        wrong = WireError(f"{self.key}: {shown(plain)} is no {'base64' if self.kind == 'bytes' else self.kind}{why}")
        wrong.key = self.key
        raise wrong

    def _hint(self, plain: Any) -> str:
        if not isinstance(plain, str):
            return ""
        if (nul := nul_found(plain, plain.find("\0"))) is not None:
            return f": it has {nul}"
        if self.kind != "number" or self.decimal is None:
            return ""
        other: Decimal = "," if self.decimal == "." else "."
        known = other in plain and looks_like(plain, other) == "number"
        return f'; if numbers are written so, set decimal: "{other}" in the codec' if known else ""


def images_among(stated: Iterable[Stated]) -> frozenset[str]:
    """The keys whose values are images."""
    return frozenset(of_key.key for of_key in stated if gives_images(of_key))


class Decoders(dict[str, D]):
    """The decoder of each key's values: of its own for a key whose type is stated, and the same for all others."""

    def __init__(self, make: Callable[[Stated | None], D], stated: Iterable[Stated] = ()) -> None:
        """`make` gives the decoder of a stated type, and of `None` that of all other keys."""
        super().__init__({of_key.key: make(of_key) for of_key in stated})
        self._other = make(None)

    def __missing__(self, key: str) -> D:
        return self._other


def gives_images(stated: Stated | None) -> bool:
    """Whether values of this type are images."""
    return stated is not None and stated.kind == "image"
