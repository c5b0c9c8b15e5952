"""A dead letter as one JSON document, for MQTT 3.1.1, which has nothing but a payload."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

from connectors.records import Header

Text = str | dict[str, str] | None


def document(payload: bytes | None, key: bytes | None, headers: Sequence[Header] | None) -> bytes:
    """`{"headers": [[NAME, VALUE], ...], "key": ..., "payload": ...}`; what is no UTF-8 text is `{"base64": ...}`."""
    found = {
        "headers": [[name, _text(value)] for name, value in headers or ()],
        "key": _text(key),
        "payload": _text(payload),
    }
    return json.dumps(found, ensure_ascii=False).encode("utf-8", "replace")


def _text(value: bytes | None) -> Text:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
