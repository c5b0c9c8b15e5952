"""The text of plain JSON (RFC 8259): parsed under limits, and cut into the texts of its values."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

import msgspec

from pipelines.errors import WireError
from pipelines.wire.hints import nul_found
from pipelines.wire.limits import Limits

quickly_parsed: Final = msgspec.json.Decoder().decode
"""Parses a text, `str` or bytes in UTF-8, several times as fast as `json`, with the same result.

It is stricter: raises one of `REFUSED` for half of a surrogate pair, numbers beyond the largest, a byte order mark and
levels of nesting, too.
"""
REFUSED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions of `quickly_parsed`."""
INDEX: Final = re.compile(r"0|[1-9][0-9]{0,15}")
"""Steps of a pointer that may be the number of an element."""
_BOM: Final = b"\xef\xbb\xbf"


def text_of(payload: object, limits: Limits) -> str:
    """The text of a payload, without a byte order mark. Raises `WireError` if it is too long or no UTF-8."""
    if not isinstance(payload, bytes):
        if not isinstance(payload, (bytearray, memoryview)):
            raise WireError(
                f"the json codec reads bytes, but the payload is of type {type(payload).__name__}; "
                "choose the codec that fits the source"
            )
        payload = bytes(payload)
    limits.check_bytes(len(payload))
    try:
        return (payload.removeprefix(_BOM) if payload[:1] == _BOM[:1] else payload).decode()
    except UnicodeDecodeError as error:
        raise WireError(f"the payload is no JSON: it is not UTF-8 at byte {error.start}") from None


def parsed(text: str | bytes) -> Any:
    """The value that `json` gives for a text in UTF-8; an integer of thousands of digits becomes one beyond 64 bits.

    Raises `WireError` for a text that is no JSON; NaN and Infinity are none.
    """
    try:
        return quickly_parsed(text)
    except REFUSED:
        if isinstance(text, bytes):
            text = text.decode()
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise _no_json(error) from None
    except RecursionError:
        raise _TOO_DEEP from None
    except WireError:
        raise
    except ValueError:
        # Python reads no integers of more digits than `sys.get_int_max_str_digits`.
        return _LENIENT.decode(text)


def parsed_all(texts: Sequence[bytes]) -> list[Any]:
    """The result of `parsed` for each of these texts, all of which are JSON values."""
    try:
        found: list[Any] = quickly_parsed(b"[" + b",".join(texts) + b"]")
        return found
    except REFUSED:
        return [parsed(text) for text in texts]


def documents(text: str) -> Iterator[tuple[Any, str]]:
    """The elements of an array, or the values of the lines (https://jsonlines.org), each parsed and with its text.

    A value may take several lines, but no line has two. Raises `WireError`.
    """
    try:
        at = _space(text, 0)
        if text[at : at + 1] == "[":
            yield from _elements_of(text, at)
            return
        while at < len(text):
            value, end = _value(text, at)
            yield value, text[at:end]
            at = _space(text, end)
            if at < len(text) and "\n" not in text[end:at]:
                raise _more(text, at, f"a second value in one line, at character {at}")
    except json.JSONDecodeError as error:
        raise _no_json(error) from None
    except RecursionError:
        raise _TOO_DEEP from None


def members(text: str, at: int = 0) -> dict[str, tuple[int, int]]:
    """Where the values of an object begin and end: of the object at `at` of a text that was parsed."""
    found: dict[str, tuple[int, int]] = {}
    at = _space(text, _space(text, at) + 1)
    while text[at] != "}":
        key, at = _SPANS.raw_decode(text, at)
        begin = _space(text, _space(text, at) + 1)
        _, end = _SPANS.raw_decode(text, begin)
        found[key] = begin, end
        at = _space(text, end)
        if text[at] == ",":
            at = _space(text, at + 1)
    return found


def elements(text: str, at: int = 0) -> list[tuple[int, int]]:
    """Where the elements of an array begin and end: of the array at `at` of a text that was parsed."""
    found: list[tuple[int, int]] = []
    at = _space(text, _space(text, at) + 1)
    while text[at] != "]":
        _, end = _SPANS.raw_decode(text, at)
        found.append((at, end))
        at = _space(text, end)
        if text[at] == ",":
            at = _space(text, at + 1)
    return found


@dataclass(frozen=True, slots=True)
class Pointer:
    """A place in a document: a JSON pointer (RFC 6901), as `/readings/0/temp`; empty: the whole document."""

    text: str
    """How it is written."""

    def __post_init__(self) -> None:
        """Raises `ValueError` for a text that is no pointer."""
        if self.text and not self.text.startswith("/"):
            raise ValueError(f'"{self.text}" is no JSON pointer, which begins with a slash: /{self.text}')
        if re.search("~(?![01])", self.text):
            raise ValueError(f'"{self.text}" is no JSON pointer: in one, ~ is written ~0 and / in a key ~1')

    @property
    def steps(self) -> tuple[str, ...]:
        """The keys and numbers on the way."""
        return tuple(step.replace("~1", "/").replace("~0", "~") for step in self.text.split("/")[1:])

    def value(self, plain: Any) -> Any:
        """The value at this place of a parsed document; `None` if there is none."""
        for step in self.steps:
            if isinstance(plain, Mapping):
                plain = plain.get(step)
            elif isinstance(plain, list) and INDEX.fullmatch(step) and int(step) < len(plain):
                plain = plain[int(step)]
            else:
                return None
        return plain

    def span(self, text: str) -> tuple[int, int] | None:
        """Where that is in the document's text."""
        begin = _space(text, 0)
        end = len(text.rstrip(" \t\n\r"))
        for step in self.steps:
            begin = _space(text, begin)
            if text[begin] == "{":
                found = members(text, begin).get(step)
            elif text[begin] == "[" and INDEX.fullmatch(step):
                places = elements(text, begin)
                found = places[int(step)] if int(step) < len(places) else None
            else:
                found = None
            if found is None:
                return None
            begin, end = found
        return begin, end


def check_size(text: str, limits: Limits) -> None:
    """Raise `WireError` if the text of a record is nested too deep, or holds too many keys or elements.

    Every key of an object counts, also one that is there twice. In records that are far from the limits only brackets,
    colons and commas are counted.
    """
    size = len(text)
    # A short text has no more of them than characters.
    if (
        text.count("{") + text.count("[") <= limits.max_depth
        and (size <= limits.max_keys or text.count(":") <= limits.max_keys)
        and (size <= limits.max_elements or limits.max_depth + text.count(",") <= limits.max_elements)
    ):
        return
    counts: list[int] = []
    inner = count = 0
    for token in _TOKENS.finditer(text):
        kind = token[0][0]
        if kind in "{[":
            limits.check_depth(len(counts))
            inner += kind == "{" and bool(counts)
            count += kind == "["
            counts.append(0)
        elif not counts:
            # No JSON, which the parser says better.
            return
        elif kind in "}]":
            counts.pop()
        elif kind == ",":
            # Behind a comma of an object comes a key, which counts itself.
            count += 1
        elif token[1] is not None:
            counts[-1] += 1
            inner += len(counts) > 1
            limits.check_keys(counts[-1])
        limits.check_inner_keys(inner)
        limits.check_elements(count)


def _elements_of(text: str, at: int) -> Iterator[tuple[Any, str]]:
    at = _space(text, at + 1)
    closed = text[at : at + 1] == "]"
    while not closed:
        value, end = _value(text, at)
        yield value, text[at:end]
        at = _space(text, end)
        closed = text[at : at + 1] == "]"
        if not closed:
            if text[at : at + 1] != ",":
                raise json.JSONDecodeError("Expecting ',' delimiter", text, at)
            at = _space(text, at + 1)
    if (rest := _space(text, at + 1)) != len(text):
        raise _more(text, rest, f"more follows its array at character {at + 1}")


def _value(text: str, at: int) -> tuple[Any, int]:
    try:
        return _DECODER.raw_decode(text, at)
    except (json.JSONDecodeError, WireError):
        raise
    except ValueError:
        return _LENIENT.raw_decode(text, at)


def _space(text: str, at: int) -> int:
    """The first place from `at` on that is no white space."""
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _more(text: str, at: int, otherwise: str) -> WireError:
    nul = nul_found(text, at)
    return WireError(f"the payload is no JSON: {otherwise if nul is None else f'it has {nul}'}")


def _no_json(error: json.JSONDecodeError) -> WireError:
    if not error.doc.strip():
        return WireError("the payload is no JSON: it is empty")
    if (nul := nul_found(error.doc, error.pos)) is not None:
        return WireError(f"the payload is no JSON: it has {nul}")
    if error.msg == "Extra data":
        hint = "; each: true in the codec makes a row of every line" if error.lineno > 1 else ""
        return WireError(f"the payload is no JSON: more follows its value at character {error.pos}{hint}")
    return WireError(f"the payload is no JSON: {error}")


def _no_constant(name: str) -> NoReturn:
    raise WireError(f"the payload is no JSON: {name} is no number there; write null, or leave the key out")


def _integer(digits: str) -> int:
    return int(digits) if len(digits) < _MOST_DIGITS else _BEYOND


_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)
_LENIENT: Final = json.JSONDecoder(parse_constant=_no_constant, parse_int=_integer)
# Numbers as texts: only where they end counts.
_SPANS: Final = json.JSONDecoder(parse_int=str, parse_float=str)
_MOST_DIGITS: Final = 4000
_BEYOND: Final = 1 << 64
_SPACE: Final = re.compile(r"[ \t\n\r]*")

# Brackets, braces and commas; strings, with a colon behind those that are keys.
_TOKENS: Final = re.compile(r'[][{},]|"[^"\\]*+(?:\\.[^"\\]*+)*+"(\s*+:)?', re.DOTALL)
_TOO_DEEP: Final = WireError("the payload is nested too deep")
