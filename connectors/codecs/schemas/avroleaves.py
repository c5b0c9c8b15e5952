"""Avro's types without values inside, as results are written by them: which values each holds, and how it has them.

Times are milliseconds, decimals numbers or texts, a UUID is a text (`avroschema`). What a type cannot hold is refused:
what is outside its range would be written as another value, or as one that no reader can read.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, DecimalException, localcontext
from typing import Any, Final
from uuid import UUID

from connectors.codecs.schemas import float32
from connectors.codecs.schemas.avrotree import SAID

DAY: Final = 86_400_000
"""Milliseconds."""
INTEGERS: Final = {"int": range(-(1 << 31), 1 << 31), "long": range(-(1 << 63), 1 << 63)}
UUID_TEXT: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

Written = tuple[Any, bool]
"""A value for fastavro, and whether that is exactly the value."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A type without values inside."""

    name: str
    """Its name in a union."""
    said: str
    """Its name in errors."""
    put: Callable[[Any], Written | None]
    """The value as the type has it; `None` for a value that it cannot hold."""
    hint: Callable[[Any], str | None] = lambda value: None
    """What the type holds, for the error of a value that it cannot hold; `None` if that is of no help."""
    holds_all: Callable[[list[Any]], bool] = lambda values: False
    """Whether it holds all these values, as they are: a long list of numbers costs little then. It may say no although
    it does."""


def leaf(schema: Any, *, logical: bool) -> Leaf:
    """The type of this schema, with or without its logical type."""
    kind = str(schema if isinstance(schema, str) else schema["type"])
    options = {} if isinstance(schema, str) else schema
    meaning = str(options.get("logicalType", "")).removeprefix("streamer-") if logical else ""
    if meaning in _TIMES:
        return _time(kind, meaning, options)
    if meaning.startswith("decimal"):
        return _decimal(kind, options)
    if meaning == "uuid":
        return _uuid(kind, options)
    if kind == "enum":
        symbols = options["symbols"]
        return Leaf(options["name"], f"one of {', '.join(symbols[:10])}", _held(str, symbols.__contains__))
    if kind == "fixed":
        size = options["size"]
        return Leaf(options["name"], f"{size} bytes", _held(bytes, lambda value: len(value) == size))
    return _PLAIN[kind]


def is_utf8(text: str) -> bool:
    """Whether the text can be written: one with half of a surrogate pair cannot."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def _held(kind: type, fits: Callable[[Any], object] = lambda value: True) -> Callable[[Any], Written | None]:
    return lambda value: (value, True) if isinstance(value, kind) and fits(value) else None


def _integer(kind: str) -> Leaf:
    least, most = INTEGERS[kind][0], INTEGERS[kind][-1]

    def holds_all(values: list[Any]) -> bool:
        return set(map(type, values)) == {int} and least <= min(values) and max(values) <= most

    return Leaf(
        kind,
        kind,
        lambda value: (value, True) if type(value) is int and least <= value <= most else None,
        lambda value: f"{kind} holds {least} to {most}" if _is_whole(value) else None,
        holds_all,
    )


def _float(value: Any) -> Written | None:
    if type(value) is not int and type(value) is not float:
        return None
    try:
        (short,) = _FLOAT.unpack(_FLOAT.pack(value))
    except OverflowError:
        return None
    return value, short == value or value != value


def _floats(values: list[Any]) -> bool:
    return set(map(type, values)) <= {int, float} and float32.all_fit(values)


def _double(value: Any) -> Written | None:
    if type(value) is int:
        return value, int(float(value)) == value
    return (value, True) if isinstance(value, float) else None


def _time(kind: str, logical: str, schema: Mapping[str, Any]) -> Leaf:
    """Milliseconds, as days, or as microseconds or nanoseconds."""
    up, down, of_day = _TIMES[logical]
    bounds = INTEGERS[kind]
    least, most = (0, DAY - 1) if of_day else (-((-bounds[0] // up) * down), (bounds[-1] // up + 1) * down - 1)
    said = f"{kind} ({schema.get(SAID, logical)})"

    def put(value: Any) -> Written | None:
        if type(value) is not int or not least <= value <= most:
            return None
        return value * up // down, not value % down

    return Leaf(
        kind, said, put, lambda value: f"{said} holds {least} to {most} milliseconds" if _is_whole(value) else None
    )


def _uuid(kind: str, schema: Mapping[str, Any]) -> Leaf:
    def raw(value: Any) -> Written | None:
        if isinstance(value, bytes):
            # They are read as a text.
            return (value, False) if len(value) == _UUID_SIZE else None
        try:
            return (UUID(value).bytes, True) if isinstance(value, str) else None
        except ValueError:
            return None

    def hint(value: Any) -> str | None:
        return "a UUID is 32 hexadecimal digits, 8-4-4-4-12" if isinstance(value, str) else None

    if kind == "fixed":
        return Leaf(schema["name"], "fixed (uuid)", raw, hint)
    return Leaf(kind, f"{kind} (uuid)", _held(str, UUID_TEXT.fullmatch), hint)


def _decimal(kind: str, schema: Mapping[str, Any]) -> Leaf:
    name = schema["name"] if kind == "fixed" else kind
    precision, scale, size = schema.get("precision"), int(schema.get("scale", 0)), schema.get("size")

    def fits(unscaled: int) -> bool:
        if precision and abs(unscaled) >= 10 ** int(precision):
            return False
        return size is None or (unscaled.bit_length() + 8) // 8 <= size

    def put(value: Any) -> Written | None:
        if isinstance(value, bytes):
            right = size in (None, len(value)) and fits(int.from_bytes(value, "big", signed=True))
            # They are read as a number.
            return (value, False) if right else None
        number = _number(value)
        if number is None:
            return None
        with localcontext(prec=1000):
            try:
                scaled = number.scaleb(scale)
                unscaled = int(scaled.to_integral_value())
            except DecimalException:
                return None
        if not fits(unscaled):
            return None
        room = (unscaled.bit_length() + 8) // 8 if size is None else size
        return unscaled.to_bytes(room, "big", signed=True), scaled == unscaled

    def hint(value: Any) -> str | None:
        if _number(value) is None:
            return None
        digits = f"{precision} digits" if precision else "digits"
        within = "" if size is None else f" within {size} bytes"
        return f"the decimal holds {digits}, {scale} of them behind the point{within}"

    return Leaf(name, f"{kind} (decimal)", put, hint)


def _number(value: Any) -> Decimal | None:
    """The number that a number or a text is; `None` for other values, NaN and infinity."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = Decimal(str(value))
    except DecimalException:
        return None
    return number if number.is_finite() else None


def _is_whole(value: Any) -> bool:
    return type(value) is int or (type(value) is float and value.is_integer())


_FLOAT: Final = struct.Struct("<f")
_UUID_SIZE: Final = 16
_TIMES: Final[Mapping[str, tuple[int, int, bool]]] = {
    "date": (1, DAY, False),
    "micros": (1000, 1, False),
    "nanos": (1_000_000, 1, False),
    "time-millis": (1, 1, True),
    "time-micros": (1000, 1, True),
}
"""By what milliseconds are multiplied and divided, and whether they are of a day."""
_PLAIN: Final[Mapping[str, Leaf]] = {
    "null": Leaf("null", "null", _held(type(None))),
    "boolean": Leaf("boolean", "boolean", _held(bool)),
    **{kind: _integer(kind) for kind in INTEGERS},
    "float": Leaf(
        "float", "float", _float, lambda value: f"float holds {float32.RANGE}" if _is_whole(value) else None, _floats
    ),
    "double": Leaf("double", "double", _double, holds_all=lambda values: set(map(type, values)) <= {int, float}),
    "string": Leaf("string", "string", _held(str, is_utf8)),
    "bytes": Leaf("bytes", "bytes", _held(bytes)),
}
