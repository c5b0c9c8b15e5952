"""A dead letter as one JSON document, for messages without headers and key: those of MQTT 3.1.1, lines of a file."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from connectors.records import Header

Text = str | dict[str, str] | None


def document(payload: bytes | None, key: bytes | None, headers: Sequence[Header] | None) -> bytes:
    """`{"headers": [[NAME, VALUE], ...], "key": ..., "payload": ...}`; non-UTF-8 bytes are `{"base64": ...}`."""
    fields = {
        "headers": [[name, _text(value)] for name, value in headers or ()],
        "key": _text(key),
        "payload": _text(payload),
    }
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")


class Parts(NamedTuple):
    """The arguments of `document`: payload, key and headers."""

    payload: bytes | None
    key: bytes | None
    headers: list[Header]


def parts(text: bytes) -> Parts:
    """Payload, key and headers of this document. Raises `ValueError` for text that `document` does not write."""
    try:
        fields = json.loads(text)
        # A name that is not UTF-8 is refused here, not by the sink that the letter goes to.
        headers = [(str(name).encode().decode(), _bytes(value)) for name, value in fields["headers"]]
        return Parts(_bytes(fields["payload"]), _bytes(fields["key"]), headers)
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"it is not a dead letter: {type(error).__name__}: {error}") from error


def _bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    return base64.b64decode(value["base64"], validate=True)


def _text(value: bytes | None) -> Text:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
