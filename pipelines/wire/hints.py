"""What errors say about common mistakes of producers: NUL bytes, and records that are encoded twice."""

from __future__ import annotations


def nul_found(text: str, at: int) -> str | None:
    """What is said of a NUL byte at character `at` of a payload's text; `None` if none is there."""
    if text[at : at + 1] != "\0":
        return None
    if text.rstrip("\0").count("\0") * 3 > len(text):
        return f"a NUL byte (\\x00) at character {at}, and at every other one, as in UTF-16; send UTF-8"
    if not text[at:].strip("\0"):
        return (
            f"a NUL byte (\\x00) at the end, at character {at}; "
            "senders written in C send it with a text's length plus one: send one byte less"
        )
    return f"a NUL byte (\\x00) at character {at}"


def encoded_twice(plain: object) -> str:
    """What to do about a parsed value that stands where an object has to be; empty unless it is a text of JSON."""
    if not isinstance(plain, str) or plain.lstrip()[:1] not in ("{", "["):
        return ""
    return (
        "; the text is JSON itself: the producer encodes twice (json.dumps, and a serializer that does the same), and "
        "should do it once"
    )
