"""Which codec would read a payload that another one cannot."""

from __future__ import annotations

from typing import Final

from connectors.codecs.registry import CODECS, codec_of
from connectors.message import Message, records_of
from pipelines.errors import StreamerError

_TRIED: Final = ("json", "konduit-json", "image", "protodata", "sparkplug", "msgpack")
"""In the order of how little they take for theirs. `raw` and `text` read anything, and `csv` any text."""


def fitting_codec(payload: bytes) -> str | None:
    """The name of a codec, used without settings, that decodes the payload to at least one value."""
    records = records_of([Message(payload)], "payload")
    for name in _TRIED:
        if name not in CODECS.known:
            continue
        try:
            decoded = codec_of(name).decode(records, None)
            if not decoded.failed and any(len(data) for data in decoded.batch.to_list()):
                return name
        except StreamerError:
            continue  # its package is not installed, or the values themselves cannot be read
    return None
