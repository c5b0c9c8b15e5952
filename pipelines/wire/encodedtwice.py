"""JSON inside a text of JSON: producers that encode a record twice."""

from __future__ import annotations


def encoded_twice(plain: object) -> str:
    """What to do about a parsed value that stands where an object has to be; empty unless it is a text of JSON."""
    if not isinstance(plain, str) or plain.lstrip()[:1] not in ("{", "["):
        return ""
    return (
        "; the text is JSON itself: the producer encodes twice (json.dumps, and a serializer that does the same), and "
        "should do it once"
    )
