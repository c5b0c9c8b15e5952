"""Which codec would read a payload that another one cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from connectors.codecs.registry import CODECS, codec_of
from connectors.message import Message, records_of

if TYPE_CHECKING:
    from streamer.agent.decodedbatch import DecodedBatch

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
        except Exception:  # noqa: BLE001, S112 - no package, no values, or bytes made to break it: no hint is worth that
            continue
    return None


LARGEST: Final = 1 << 20
"""Bytes of a payload that a running service tries with other codecs at most: its records wait meanwhile."""


class CodecHints:
    """Logs once for each source which codec would read its payloads, where the source's own codec cannot.

    One payload of a source is tried, so that a topic of broken records costs no more than one.
    """

    def __init__(self, log: Any) -> None:
        self._log = log
        self._found: dict[str, str | None] = {}

    def look(self, decoded: DecodedBatch, place: Callable[[int], str]) -> None:
        """Try the payload of the first row that could not be decoded, if none of its source was tried before.

        `place` gives topic, partition and offset of a row's record, as text. Payloads that are empty, larger than
        `LARGEST`, or no bytes, such as a camera's picture, are passed over.
        """
        if decoded.source in self._found:
            return
        for row in decoded.failed:
            payload = decoded.records.values[row - decoded.first]
            if isinstance(payload, bytes) and 0 < len(payload) <= LARGEST:
                found = self._found[decoded.source] = fitting_codec(payload)
                if found is not None:
                    self._log.warning(
                        "another codec reads this record", source=decoded.source, at=place(row), codec=found
                    )
                return

    def of(self, source: str) -> str:
        """What to add to the error that stops the service; empty if no codec was found."""
        found = self._found.get(source)
        return "" if found is None else f'; such payloads are read with "codec: {found}" in the source {source}'
