"""Strings in binary streams: Java's modified UTF-8, and lines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import IO, Literal, TypeAlias

from pipelines.errors import DataError, WireError

StringForm: TypeAlias = Literal["modified-utf8", "lines"]
"""How strings follow one another in a stream."""

_LONGEST = 0xFFFF


def read_stream(stream: IO[bytes], form: StringForm, most: int) -> list[bytes]:
    """The strings up to the end of the stream, in UTF-8. `WireError` if it is broken or holds more than `most`."""
    strings: list[bytes] = []
    for encoded in _written_utf(stream) if form == "modified-utf8" else _lines(stream):
        if len(strings) == most:
            raise WireError(f"the stream holds more than {most} strings; raise `most` if that is expected")
        strings.append(encoded)
    return strings


def write_stream(stream: IO[bytes], encoded: Iterable[bytes], form: StringForm) -> None:
    """Write strings that are UTF-8. `DataError` for one that the form cannot carry."""
    for text in encoded:
        stream.write(_as_utf(text) if form == "modified-utf8" else _as_line(text))


def _written_utf(stream: IO[bytes]) -> Iterable[bytes]:
    while head := _exactly(stream, 2, may_end=True):
        yield _from_modified(_exactly(stream, int.from_bytes(head, "big")))


def _lines(stream: IO[bytes]) -> Iterable[bytes]:
    for line in stream:
        bare = line.removesuffix(b"\n").removesuffix(b"\r")
        try:
            bare.decode()
        except UnicodeDecodeError as error:
            raise WireError(f"the line {bare[:80]!r} is not valid UTF-8: {error.reason}") from None
        yield bare


def _exactly(stream: IO[bytes], size: int, *, may_end: bool = False) -> bytes:
    data = b""
    while len(data) < size:
        part = stream.read(size - len(data))
        if not part:
            if may_end and not data:
                return b""
            raise WireError(f"the stream ended within a string: {len(data)} of {size} bytes")
        data += part
    return data


def _from_modified(raw: bytes) -> bytes:
    try:
        # A character beyond the first 65,536 is written as two halves of three bytes each, and NUL as two bytes.
        halves = raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        return halves.encode("utf-16", "surrogatepass").decode("utf-16").encode()
    except UnicodeError as error:
        raise WireError(f"the string {raw[:80]!r} is not modified UTF-8: {error}") from None


def _as_utf(encoded: bytes) -> bytes:
    text = _text(encoded)
    wide = text.encode("utf-16-be")
    halves = "".join(chr(int.from_bytes(wide[at : at + 2], "big")) for at in range(0, len(wide), 2))
    raw = halves.encode("utf-8", "surrogatepass").replace(b"\0", b"\xc0\x80")
    if len(raw) > _LONGEST:
        raise DataError(f"a string of {len(raw)} bytes; {_LONGEST} is the longest in modified UTF-8")
    return len(raw).to_bytes(2, "big") + raw


def _as_line(encoded: bytes) -> bytes:
    _text(encoded)
    if b"\n" in encoded or encoded.endswith(b"\r"):
        raise DataError(f"the string {encoded[:80]!r} has more than one line; write it as modified-utf8")
    return encoded + b"\n"


def _text(encoded: bytes) -> str:
    try:
        return encoded.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"the string {encoded[:80]!r} is not valid UTF-8: {error.reason}") from None
