"""Arrays and lists of one element, such as a model's output for a record, where a format has room for one value."""

from __future__ import annotations

from typing import Any


def only_element(value: Any) -> Any:
    """The number, text or boolean in a list, nested or not, that has no other; any other value as it is.

    It is 1.5 for `[[1.5]]`. Arrays are such lists in plain values.
    """
    element = value
    while isinstance(element, list) and len(element) == 1:
        (element,) = element
    return value if isinstance(element, (list, dict)) else element


def described(value: Any) -> str:
    """Describes a plain value, for errors: `the text 'high'`, `a list of 2 numbers`, `a list [2, 3] of numbers`."""
    if isinstance(value, list):
        return _list(value)
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if value is None:
        return "null"
    text = repr(value)
    text = text if len(text) <= _MOST else f"{text[: _MOST - 3]}..."
    return f"the {_NAMES[type(value)]} {text}" if type(value) in _NAMES else text


def _list(value: list[Any]) -> str:
    shape: list[int] = []
    inner: list[Any] = [value]
    while inner and all(isinstance(item, list) for item in inner):
        sizes = {len(item) for item in inner}
        inner = [other for item in inner for other in item]
        if len(sizes) > 1:
            return f"a list of {len(value)} lists"
        shape += sizes
    kinds = {_PLURALS.get(type(item), "values") for item in inner}
    what = kinds.pop() if len(kinds) == 1 else "values"
    return f"a list of {shape[0]} {what}" if len(shape) == 1 else f"a list {shape} of {what}"


_MOST = 60
_NAMES = {str: "text", int: "integer", float: "number", bool: "boolean"}
_PLURALS = {str: "texts", int: "numbers", float: "numbers", bool: "booleans", dict: "objects"}
