"""The functions that expressions may call. All others are refused, so that a new Polars adds nothing unseen.

The table in `docs/steps/map.md` is written from this one, and `tests/pipelines/expressions/test_functions.py` runs each
example.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Function:
    """A function: how it is called, and what it gives."""

    group: str
    """What it works on: numbers, texts, times, or values of any type."""
    call: str
    """An example call, of values that `example` names."""
    example: Mapping[str, object]
    result: object
    """What the call gives for the example."""
    says: str
    """What it gives, in a few words."""
    repeats: int = 2
    """How often the planner writes out an argument at most, as two functions inside each other show."""


def _of(group: str, *functions: tuple[str, Mapping[str, object], object, str]) -> dict[str, Function]:
    return {call.partition("(")[0].lower(): Function(group, call, *rest) for call, *rest in functions}  # type: ignore[arg-type]


_TIME: Final = {"at": 1764424800123}
"""2025-11-29 14:00:00.123 UTC, in milliseconds since 1970."""
_AT: Final = "TRY_CAST(at * 1000 AS TIMESTAMP)"

FUNCTIONS: Final[Mapping[str, Function]] = {
    **_of(
        "values of any type",
        ("COALESCE(a, b, 0)", {"b": 2.5}, 2.5, "the first that is not missing"),
        ("NULLIF(a, -999)", {"a": -999}, None, "the first; missing if both are equal"),
        ("GREATEST(a, b)", {"a": 1.5, "b": 2}, 2.0, "the greatest that is there"),
        ("LEAST(a, b)", {"a": 1.5, "b": 2}, 1.5, "the least that is there"),
        ("IF(a > 1, 'high', 'low')", {"a": 1.5}, "high", "the second if the first is true, else the third"),
        (
            "TRY_CAST(a AS DOUBLE)",
            {"a": "23.5"},
            23.5,
            "the value as DOUBLE, BIGINT (an integer), TEXT, BOOLEAN (of numbers) or TIMESTAMP (of microseconds); "
            "missing where that is impossible",
        ),
    ),
    **_of(
        "numbers",
        ("ABS(a)", {"a": -1.5}, 1.5, "without its sign"),
        ("SIGN(a)", {"a": -1.5}, -1.0, "-1, 0 or 1"),
        ("ROUND(a, 1)", {"a": 2.46}, 2.5, "rounded to so many digits"),
        ("CEIL(a)", {"a": 1.2}, 2.0, "the next integer above"),
        ("FLOOR(a)", {"a": -1.2}, -2.0, "the next integer below"),
        ("MOD(a, 360)", {"a": 370}, 10.0, "the remainder, as `a % 360`"),
        ("SQRT(a)", {"a": 16}, 4.0, "the square root; missing below 0"),
        ("CBRT(a)", {"a": 27}, 3.0, "the cubic root"),
        ("POWER(a, 2)", {"a": 3}, 9.0, "to the power of"),
        ("EXP(a)", {"a": 0}, 1.0, "e to the power of"),
        ("LN(a)", {"a": 1}, 0.0, "the natural logarithm; missing below 0"),
        ("LOG10(a)", {"a": 100}, 2.0, "the logarithm to base 10; missing below 0"),
        ("LOG2(a)", {"a": 8}, 3.0, "the logarithm to base 2; missing below 0"),
        ("PI()", {}, 3.141592653589793, "3.14159..."),
        ("SIN(a)", {"a": 0}, 0.0, "the sine of radians"),
        ("COS(a)", {"a": 0}, 1.0, "the cosine of radians"),
        ("TAN(a)", {"a": 0}, 0.0, "the tangent of radians"),
        ("ASIN(a)", {"a": 0}, 0.0, "the angle of a sine, in radians"),
        ("ACOS(a)", {"a": 1}, 0.0, "the angle of a cosine, in radians"),
        ("ATAN(a)", {"a": 0}, 0.0, "the angle of a tangent, in radians"),
        ("ATAN2(a, b)", {"a": 0, "b": 1}, 0.0, "the angle of the point (b, a), in radians"),
        ("DEGREES(a)", {"a": 0}, 0.0, "radians as degrees"),
        ("RADIANS(a)", {"a": 0}, 0.0, "degrees as radians"),
    ),
    **_of(
        "texts",
        ("LOWER(t)", {"t": "Kitchen"}, "kitchen", "in lower case"),
        ("UPPER(t)", {"t": "Kitchen"}, "KITCHEN", "in upper case"),
        ("INITCAP(t)", {"t": "living room"}, "Living Room", "each word with a capital"),
        ("LENGTH(t)", {"t": "häuser"}, 6, "the number of characters"),
        ("OCTET_LENGTH(t)", {"t": "häuser"}, 7, "the number of bytes in UTF-8"),
        ("CONCAT(t, '-', u)", {"t": "a", "u": "b"}, "a-b", "joined; missing ones are left out, unlike with `||`"),
        ("CONCAT_WS('/', t, u)", {"t": "a", "u": "b"}, "a/b", "joined, with the first between them"),
        ("LEFT(t, 3)", {"t": "pump-7"}, "pum", "the first characters"),
        ("RIGHT(t, 1)", {"t": "pump-7"}, "7", "the last characters"),
        ("SUBSTR(t, 6, 1)", {"t": "pump-7"}, "7", "from a character, counted from 1, so many"),
        ("STRPOS(t, '-')", {"t": "pump-7"}, 5, "where a text begins in it, counted from 1; 0 if nowhere"),
        ("REPLACE(t, ',', '.')", {"t": "21,5"}, "21.5", "with each of a text replaced"),
        ("TRIM(t)", {"t": " a "}, "a", "without blanks at both ends"),
        ("LTRIM(t)", {"t": " a "}, "a ", "without blanks before it"),
        ("RTRIM(t)", {"t": " a "}, " a", "without blanks behind it"),
        ("REVERSE(t)", {"t": "abc"}, "cba", "backwards"),
        ("STARTS_WITH(t, 'pu')", {"t": "pump"}, True, "whether it begins with a text"),
        ("ENDS_WITH(t, 'mp')", {"t": "pump"}, True, "whether it ends with a text"),
        ("REGEXP_LIKE(t, '^p[a-z]+$')", {"t": "pump"}, True, "whether a regular expression matches, as `t ~ '...'`"),
    ),
    "split_part": Function(
        "texts",
        "SPLIT_PART(t, '/', 2)",
        {"t": "home/hall/lamp"},
        "hall",
        "the part between separators, counted from 1",
        repeats=4,
    ),
    **_of(
        "times",
        (f"STRFTIME({_AT}, '%Y-%m-%d %H:%M')", _TIME, "2025-11-29 14:00", "as a text, in UTC"),
        (
            f"DATE_PART('hour', {_AT})",
            _TIME,
            14,
            "year, month, day, hour, minute, second, dow (day of the week), ... in UTC",
        ),
    ),
}
"""By name, in lower case."""
