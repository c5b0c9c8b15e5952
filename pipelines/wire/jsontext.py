"""The text of plain JSON (RFC 8259): parsed under limits, and cut into the texts of its values.

msgspec reads a text several times as fast as `json`, with the same result, but refuses some that are JSON: those with
half of a surrogate pair and with very large numbers. `json` reads these, and says what is wrong with all others.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, TypeAlias

import msgspec

from pipelines.errors import WireError, nearest
from pipelines.wire.hints import encoded_twice, nul_found
from pipelines.wire.limits import Limits

Text: TypeAlias = bytes | msgspec.Raw
"""A JSON value as it is written, in UTF-8; `Raw` is a piece of a payload, not copied, and joins with bytes."""

quickly_parsed: Final = msgspec.json.Decoder().decode
"""Parses a text. Raises one of `REFUSED` for one that is not JSON or that only `json` reads."""
REFUSED: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The exceptions of `quickly_parsed`."""
INDEX: Final = re.compile(r"0|[1-9][0-9]{0,15}")
"""Steps of a pointer that may be the number of an element."""
_BOM: Final = b"\xef\xbb\xbf"


def text_of(payload: object, limits: Limits) -> bytes:
    """The text of a payload, without a byte order mark. Raises `WireError` if it is too long or not UTF-8."""
    if not isinstance(payload, bytes):
        if not isinstance(payload, (bytearray, memoryview)):
            raise WireError(
                f"the json codec reads bytes, but the payload is of type {type(payload).__name__}; "
                "choose the codec that fits the source"
            )
        payload = bytes(payload)
    limits.check_bytes(len(payload))
    text = payload.removeprefix(_BOM)
    try:
        # msgspec does not look into texts that it only cuts out.
        text.decode()
    except UnicodeDecodeError as error:
        raise WireError(f"the payload is no JSON: it is not UTF-8 at byte {error.start}") from None
    return text


def parsed(text: Text) -> Any:
    """The value that `json` gives for a text in UTF-8; an integer of thousands of digits becomes one beyond 64 bits.

    Raises `WireError` for a text that is not JSON; NaN and Infinity are not.
    """
    try:
        return quickly_parsed(text)
    except REFUSED:
        string = bytes(text).decode()
    try:
        return _DECODER.decode(string)
    except json.JSONDecodeError as error:
        raise _no_json(error) from None
    except RecursionError:
        raise _TOO_DEEP from None
    except WireError:
        raise
    except ValueError:
        # Python reads no integers of more digits than `sys.get_int_max_str_digits`.
        return _LENIENT.decode(string)


def members(text: Text) -> dict[str, Any]:
    """The values of an object by key, as texts; the last one of a key that is there twice.

    Raises `WireError` for a text that is not JSON, or not an object.
    """
    try:
        return _MEMBERS(text)
    except REFUSED:
        plain = parsed(text)
    if not isinstance(plain, dict):
        raise WireError(f"a record is a JSON object, not {described(plain)}{_instead(plain)}")
    string, values = bytes(text).decode(), dict[str, Text]()
    at = _space(string, _space(string, 0) + 1)
    while string[at] != "}":
        key, at = _SPANS.raw_decode(string, at)
        begin = _space(string, _space(string, at) + 1)
        _, end = _SPANS.raw_decode(string, begin)
        values[key] = string[begin:end].encode()
        at = _space(string, end)
        if string[at] == ",":
            at = _space(string, at + 1)
    return values


def members_of_lines(lines: bytes, count: int) -> list[dict[str, Any]] | None:
    """The `members` of `count` texts, joined by line breaks; `None` unless each is one JSON object without null.

    Each text has to begin and to end with a brace: then no value goes on in the next text, as strings of JSON hold no
    line breaks, and as many objects as texts means one in each.
    """
    try:
        if with_null(lines) or not (lines.isascii() or lines.decode()):
            return None
        records = _MEMBERS_OF_LINES(lines)
    except REFUSED:
        return None
    return records if len(records) == count else None


def without_nan(text: bytes) -> bytes:
    """The text with null in place of NaN and infinity, bare words as programs in C print them, in any case."""
    return _STRINGS_AND_NAN.sub(lambda token: token[0] if token[1] is None else b"null", text)


def brackets(text: bytes) -> int:
    """The number of objects and arrays that a text begins, or more: it has no more levels."""
    return text.count(b"{") + text.count(b"[")


def elements(text: Text) -> Sequence[Text]:
    """The values of an array, as texts. Raises `WireError` if it is not JSON."""
    try:
        return _ELEMENTS(text)
    except REFUSED:
        return [element for _, element in documents(bytes(text))]


def documents(text: bytes) -> Iterator[tuple[Any, bytes]]:
    """The elements of an array, or the values of the lines (https://jsonlines.org), each parsed and with its text.

    A value may take several lines, but no line has two. Raises `WireError`.
    """
    string = text.decode()
    try:
        at = _space(string, 0)
        if string[at : at + 1] == "[":
            yield from _array(string, at)
            return
        while at < len(string):
            value, end = _value(string, at)
            yield value, string[at:end].encode()
            at = _space(string, end)
            if at < len(string) and "\n" not in string[end:at]:
                raise _more(string, at, f"a second value in one line, at character {at}")
    except json.JSONDecodeError as error:
        raise _no_json(error) from None
    except RecursionError:
        raise _TOO_DEEP from None


@dataclass(frozen=True, slots=True)
class Pointer:
    """A place in a document: a JSON pointer (RFC 6901), as `/readings/0/temp`; empty: the whole document."""

    text: str
    """How it is written."""
    steps: tuple[str, ...] = field(init=False, compare=False, repr=False)
    """The keys and numbers on the way."""

    def __post_init__(self) -> None:
        """Raises `ValueError` for a text that is no pointer."""
        if self.text and not self.text.startswith("/"):
            raise ValueError(f'"{self.text}" is no JSON pointer, which begins with a slash: /{self.text}')
        if re.search("~(?![01])", self.text):
            raise ValueError(f'"{self.text}" is no JSON pointer: in one, ~ is written ~0 and / in a key ~1')
        steps = tuple(step.replace("~1", "/").replace("~0", "~") for step in self.text.split("/")[1:])
        object.__setattr__(self, "steps", steps)

    def value(self, text: Text) -> Text | None:
        """The text of the value at this place of a document that is JSON; `None` if there is none."""
        for step in self.steps:
            first, value = bytes(text).lstrip()[:1], None
            if first == b"{":
                value = members(text).get(step)
            elif first == b"[" and INDEX.fullmatch(step):
                values = elements(text)
                value = values[int(step)] if int(step) < len(values) else None
            if value is None:
                return None
            text = value
        return bytes(text).strip()

    def way(self, plain: Any) -> Iterator[Any]:
        """The values on the way through a parsed document: itself, then those behind each step, as far as it leads."""
        yield plain
        for step in self.steps:
            if isinstance(plain, dict) and step in plain:
                plain = plain[step]
            elif isinstance(plain, list) and INDEX.fullmatch(step) and int(step) < len(plain):
                plain = plain[int(step)]
            else:
                return
            yield plain

    def inside(self, plain: Any, default: Any) -> Any:
        """The value at this place of a parsed document; `default` if there is none."""
        *_, last = values = list(self.way(plain))
        return last if len(values) > len(self.steps) else default

    def absence(self, plain: Any) -> str:
        """What is said of a parsed document without a value at this place: how far the way leads, and what is there."""
        *_, last = values = list(self.way(plain))
        reached = "/".join(self.text.split("/")[: len(values)]) or "the payload"
        step = self.steps[len(values) - 1]
        if not isinstance(last, dict):
            size = f" of {len(last)} elements" if isinstance(last, list) else ""
            return f"{reached} is {described(last)}{size}{encoded_twice(last)}"
        # Keys come from the bus: what cannot be shown is not.
        keys = [key for key in itertools.islice(last, _MOST_KEYS) if isinstance(key, str) and key.isprintable()]
        close = nearest(step, keys)
        if close or not keys:
            return f'{reached} has no "{step}"{close}'
        named = ", ".join(f'"{key[:_KEY_LENGTH]}"' for key in keys[:_NAMED_KEYS])
        return f'{reached} has no "{step}", but {named}{", ..." if len(keys) > _NAMED_KEYS else ""}'


def check_size(text: bytes, limits: Limits) -> None:
    """Raise `WireError` if the text of a record is nested too deep, or holds too many keys or elements.

    Every key of an object counts, also one that is there twice. In records that are far from the limits only brackets,
    colons and commas are counted.
    """
    size = len(text)
    # Most records are flat, which is sooner seen than counted.
    is_flat = text.rfind(b"{") <= 0 and text.find(b"[") < 0 and limits.max_depth > 0
    # A short text has no more of them than characters.
    if (
        (is_flat or text.count(b"{") + text.count(b"[") <= limits.max_depth)
        and (size <= limits.max_keys or text.count(b":") <= limits.max_keys)
        and (size <= limits.max_elements or limits.max_depth + text.count(b",") <= limits.max_elements)
    ):
        return
    counts: list[int] = []
    inner = count = 0
    for token in _TOKENS.finditer(text):
        kind = token[0][:1]
        if kind in b"{[":
            limits.check_depth(len(counts))
            inner += kind == b"{" and bool(counts)
            count += kind == b"["
            counts.append(0)
        elif not counts:
            # No JSON, which the parser says better.
            return
        elif kind in b"}]":
            counts.pop()
        elif kind == b",":
            # Behind a comma of an object comes a key, which counts itself.
            count += 1
        elif token[1] is not None:
            counts[-1] += 1
            inner += len(counts) > 1
            limits.check_keys(counts[-1])
        limits.check_inner_keys(inner)
        limits.check_elements(count)


def described(plain: object) -> str:
    """What kind of value this is in words of JSON, for errors."""
    names: dict[type, str] = {
        dict: "an object",
        list: "an array",
        str: "a string",
        bool: "a boolean",
        int: "a number",
        float: "a number",
    }
    return "null" if plain is None else names.get(type(plain), f"of type {type(plain).__name__}")


def _instead(plain: object) -> str:
    """A hint at the codec or option that reads such a payload."""
    if isinstance(plain, list):
        return "; each: true in the codec makes a row of every element"
    if isinstance(plain, (int, float)) and not isinstance(plain, bool):
        return "; a bare number is read by codec: {type: csv, names: [value], types: {value: number}}"
    return encoded_twice(plain)


def _array(text: str, at: int) -> Iterator[tuple[Any, bytes]]:
    at = _space(text, at + 1)
    closed = text[at : at + 1] == "]"
    while not closed:
        value, end = _value(text, at)
        yield value, text[at:end].encode()
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
    space = _SPACE.match(text, at)
    return at if space is None else space.end()


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
    if (word := _NAN.match(error.doc, error.pos)) is not None:
        return _nan(word[0])
    return WireError(f"the payload is no JSON: {error}")


def _no_constant(name: str) -> NoReturn:
    raise _nan(name)


def _nan(word: str) -> WireError:
    return WireError(
        f"the payload is no JSON: {word} is no number there; write null, or leave the key out; "
        "read_nan: missing of the codec json reads it as null"
    )


def _integer(digits: str) -> int:
    return int(digits) if len(digits) < _MOST_DIGITS else _BEYOND


with_null: Final = re.compile(b"null").search
"""Finds null in a text in half of the time that `in` takes."""
_MEMBERS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_MEMBERS_OF_LINES: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode_lines
_ELEMENTS: Final = msgspec.json.Decoder(list[msgspec.Raw]).decode
_DECODER: Final = json.JSONDecoder(parse_constant=_no_constant)
_LENIENT: Final = json.JSONDecoder(parse_constant=_no_constant, parse_int=_integer)
# Numbers as texts: only where they end counts.
_SPANS: Final = json.JSONDecoder(parse_int=str, parse_float=str)
_MOST_DIGITS: Final = 4000
_MOST_KEYS, _NAMED_KEYS, _KEY_LENGTH = 1000, 8, 40
_BEYOND: Final = 1 << 64
_SPACE: Final = re.compile(r"[ \t\n\r]*")
_NAN_WORD: Final = r"-?(?i:nan|inf(?:inity)?)(?!\w)"
_NAN: Final = re.compile(_NAN_WORD, re.ASCII)
_STRINGS_AND_NAN: Final = re.compile(rf'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+|({_NAN_WORD})'.encode(), re.DOTALL)

# Brackets, braces and commas; strings, with a colon behind those that are keys. A string without an end is one too, as
# else each escaped quote in it would be tried as the beginning of another.
_TOKENS: Final = re.compile(rb'[][{},]|"[^"\\]*+(?:\\.[^"\\]*+)*+"?+(\s*+:)?', re.DOTALL)
_TOO_DEEP: Final = WireError("the payload is nested too deep")
