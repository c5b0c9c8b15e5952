"""Avro's types without values inside, as results are written by them: which values each holds, and how it has them.

Times are milliseconds, decimals numbers or texts, a UUID is a text (`avroschema`). What a type cannot hold is refused:
what is outside its range would be written as another value, or as one that no reader can read.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
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
    classes: frozenset[type] = frozenset()
    """Python's types of values that it may hold."""
    plain: frozenset[type] = frozenset()
    """Those of which it holds every value, as it is; fastavro itself refuses integers of more than 64 bits and texts
    that are no UTF-8."""
    all_fit: Callable[[Sequence[Any]], bool] = lambda values: False
    """Whether it holds all these values of one of `classes`, as they are. It may say no although it does."""
    hint: Callable[[Any], str | None] = lambda value: None
    """What the type holds, for the error of a value that it cannot hold; `None` if that is of no help."""


def leaf(schema: Any) -> Leaf:
    """The type of this schema."""
    kind = str(schema if isinstance(schema, str) else schema["type"])
    options = {} if isinstance(schema, str) else schema
    logical = str(options.get("logicalType", "")).removeprefix("streamer-")
    if logical in _TIMES:
        return _time(kind, logical, options)
    if logical.startswith("decimal"):
        return _decimal(kind, options)
    if logical == "uuid":
        return _uuid(kind, options)
    if kind in INTEGERS:
        return _integer(kind)
    if kind == "enum":
        symbols = frozenset(options["symbols"])
        said = f"one of {', '.join(options['symbols'][:10])}"
        return Leaf(
            options["name"],
            said,
            lambda value: (value, True) if isinstance(value, str) and value in symbols else None,
            _TEXTS,
        )
    if kind == "fixed":
        size = options["size"]
        said = f"{size} bytes"
        return Leaf(
            options["name"],
            said,
            lambda value: (value, True) if isinstance(value, bytes) and len(value) == size else None,
            _BYTES,
        )
    return _PLAIN[kind]


def is_utf8(text: str) -> bool:
    """Whether the text can be written: one with half of a surrogate pair cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _own(value: Any, kind: type) -> Written | None:
    return (value, True) if isinstance(value, kind) else None


def _integer(kind: str) -> Leaf:
    own = INTEGERS[kind]
    return Leaf(
        kind,
        kind,
        lambda value: (value, True) if type(value) is int and value in own else None,
        _INTS,
        _INTS if kind == "long" else frozenset(),
        lambda values: min(values) in own and max(values) in own,
        lambda value: f"{kind} holds {own[0]} to {own[-1]}" if _is_whole(value) else None,
    )


def _float(value: Any) -> Written | None:
    if type(value) is not int and not (type(value) is float and float32.fits(value)):
        return None
    (short,) = _FLOAT.unpack(_FLOAT.pack(value))
    return value, short == value or value != value


def _double(value: Any) -> Written | None:
    if type(value) is int:
        return value, int(float(value)) == value
    return _own(value, float)


def _time(kind: str, logical: str, schema: Mapping[str, Any]) -> Leaf:
    """Milliseconds, as days, or as microseconds or nanoseconds."""
    up, down, of_day = _TIMES[logical]
    own = INTEGERS[kind]
    least, most = (0, DAY - 1) if of_day else (-((-own[0] // up) * down), (own[-1] // up + 1) * down - 1)
    said = f"{kind} ({schema.get(SAID, logical)})"

    def put(value: Any) -> Written | None:
        if type(value) is not int or not least <= value <= most:
            return None
        return value * up // down, not value % down

    as_it_is = up == down == 1
    return Leaf(
        kind,
        said,
        put,
        _INTS,
        all_fit=lambda values: as_it_is and least <= min(values) and max(values) <= most,
        hint=lambda value: f"{said} holds {least} to {most} milliseconds" if _is_whole(value) else None,
    )


def _uuid(kind: str, schema: Mapping[str, Any]) -> Leaf:
    def text(value: Any) -> Written | None:
        return (value, True) if isinstance(value, str) and UUID_TEXT.fullmatch(value) else None

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
        return Leaf(schema["name"], "fixed (uuid)", raw, _TEXTS | _BYTES, hint=hint)
    return Leaf(kind, f"{kind} (uuid)", text, _TEXTS, all_fit=lambda values: all(map(text, values)), hint=hint)


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

    return Leaf(name, f"{kind} (decimal)", put, frozenset({int, float, str, bytes}), hint=hint)


def _number(value: Any) -> Decimal | None:
    """The number that a number or a text is; `None` for other values, NaN and infinity."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        found = Decimal(str(value))
    except DecimalException:
        return None
    return found if found.is_finite() else None


def _is_whole(value: Any) -> bool:
    return type(value) is int or (type(value) is float and value.is_integer())


_Types = frozenset[type]
_NULLS: Final[_Types] = frozenset({type(None)})
_BOOLEANS: Final[_Types] = frozenset({bool})
_INTS: Final[_Types] = frozenset({int})
_REALS: Final[_Types] = frozenset({int, float})
_TEXTS: Final[_Types] = frozenset({str})
_BYTES: Final[_Types] = frozenset({bytes})
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
    "null": Leaf("null", "null", lambda value: (None, True) if value is None else None, _NULLS, _NULLS),
    "boolean": Leaf("boolean", "boolean", lambda value: _own(value, bool), _BOOLEANS, _BOOLEANS),
    "float": Leaf(
        "float",
        "float",
        _float,
        _REALS,
        _INTS,
        float32.all_fit,
        lambda value: f"float holds {float32.RANGE}" if _is_whole(value) else None,
    ),
    "double": Leaf("double", "double", _double, _REALS, _REALS),
    "string": Leaf(
        "string",
        "string",
        lambda value: (value, True) if isinstance(value, str) and is_utf8(value) else None,
        _TEXTS,
        _TEXTS,
    ),
    "bytes": Leaf("bytes", "bytes", lambda value: _own(value, bytes), _BYTES, _BYTES),
}
