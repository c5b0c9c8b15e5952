"""A dead letter as a JSON object, for people to look at: short, whatever its record holds."""

from __future__ import annotations

import base64
import codecs
import json
from collections.abc import Mapping
from typing import Any, Final

from connectors.codec import Codec
from connectors.message import Message, records_of
from pipelines.data.data import Data
from pipelines.errors import StreamerError
from pipelines.values import Image
from streamer.letters.stored import StoredLetter
from streamer.observe.values import summary, values_of

_TEXT: Final = 2000
"""The most characters of a payload and of an error's text."""
_HEX: Final = 256
"""The most bytes of a payload that is no text."""
_SHORT: Final = 300
"""The most characters of a name, a key and a header."""
_HEADERS: Final = 50
_DECODED: Final = 1 << 20
"""The most bytes of a payload that is decoded."""
_VALUE: Final = 8000
"""The most characters of its values as JSON."""
_PICTURE: Final = 32 << 10
"""The most bytes of an image file that is shown."""
_PIXELS: Final = 4_000_000
"""The most pixels of such a picture: a small file may hold a large one."""
_KINDS: Final = {"PNG": "png", "JPEG": "jpeg", "GIF": "gif", "WEBP": "webp", "BMP": "bmp"}


def document(stored: StoredLetter, codec: Codec | StreamerError) -> dict[str, Any]:
    """What a letter holds, as plain data.

    Args:
        stored: The letter.
        codec: Decodes payloads of the record's source, or the reason why there is no such codec.
    """
    letter = stored.letter
    payload = stored.payload if isinstance(stored.payload, bytes) else None
    shown: dict[str, Any] = {
        "id": stored.name,
        "time": None if stored.written < 0 else stored.written / 1000,
        "topic": letter.topic[:_SHORT],
        "partition": letter.partition,
        "offset": letter.offset,
        "timestamp": None if letter.timestamp < 0 else letter.timestamp / 1000,
        "step": letter.step[:_SHORT],
        "error": letter.error[:_SHORT],
        "text": letter.text[:_TEXT],
        "key": None if stored.key is None else _short(stored.key),
        "headers": [
            [name[:_SHORT], None if value is None else _short(value)] for name, value in letter.headers[:_HEADERS]
        ],
        "more_headers": max(0, len(letter.headers) - _HEADERS),
        "size": None if payload is None else len(payload),
    }
    if letter.record:
        shown["record"] = _bounded({name: _plain(value) for name, value in letter.record.items()})
    if letter.left_out:
        return {**shown, "left_out": letter.left_out[:_SHORT], "size": letter.size, "why": letter.refusal[:_TEXT]}
    if payload is not None:
        shown["payload"] = _beginning(payload)
        shown |= _decoded(payload, stored, codec)
    return shown


def _decoded(payload: bytes, stored: StoredLetter, codec: Codec | StreamerError) -> dict[str, Any]:
    """The values in a payload, and a picture that it holds; or why it was not decoded."""
    if isinstance(codec, StreamerError):
        return {"undecoded": str(codec)[:_TEXT]}
    if len(payload) > _DECODED:
        return {"undecoded": f"payloads of more than {_DECODED:,} bytes are not decoded here"}
    decoded = codec.decode(records_of([Message(payload, stored.key, tuple(stored.letter.headers))], "letters"), None)
    if decoded.failed:
        return {"undecoded": str(decoded.failed[0])[:_TEXT]}
    rows = decoded.batch.to_list()
    if not rows:
        return {"undecoded": "the codec makes no record of it"}
    shown: dict[str, Any] = {"value": _bounded(values_of(rows[0]))}
    picture = _picture(rows[0])
    return shown if picture is None else {**shown, "picture": picture}


def _bounded(values: Mapping[str, Any]) -> Any:
    """The values as plain data that is short: in place of what is long or deep, a text that says so."""
    try:
        short = summary(values)
        size = len(json.dumps(short, default=str))
    except RecursionError:
        return "values that are nested too deeply to be shown"
    return short if size <= _VALUE else f"{len(values):,} values, too many or too long to be shown"


def _picture(data: Data) -> str | None:
    """The first image file in a record as the address of a picture in a page; `None`: there is none that is small."""
    for value in values_of(data).values():
        encoded = value.encoded if isinstance(value, Image) else None
        if encoded is None or len(encoded) > _PICTURE or value.format not in _KINDS:
            continue
        try:
            if value.width * value.height > _PIXELS:
                continue
        except StreamerError:
            continue
        return f"data:image/{_KINDS[value.format]};base64,{base64.b64encode(encoded).decode()}"
    return None


def _beginning(payload: bytes) -> dict[str, str]:
    text = _text_of(payload[: 4 * _TEXT])
    return {"hex": payload[:_HEX].hex(" ")} if text is None else {"text": text[:_TEXT]}


def _short(content: bytes) -> str:
    text = _text_of(content[: 4 * _SHORT])
    return (content[:_SHORT].hex(" ") if text is None else text)[:_SHORT]


def _text_of(content: bytes) -> str | None:
    """The text that begins so, in UTF-8; its last character may be cut."""
    try:
        return codecs.getincrementaldecoder("utf-8")().decode(content)
    except UnicodeDecodeError:
        return None


def _plain(value: Any) -> Any:
    return _short(value) if isinstance(value, bytes) else value
