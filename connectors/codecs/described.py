"""The metadata of a record that decide how its payload is read: headers, content type, topic.

Codecs read them here only, as each bus keeps them in its own place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from connectors.records import Header, Records

CONTENT_TYPE = "content-type"
"""The header of the payload's media type, lower-case; MQTT 5 has a property of its own for it."""
CONTENT_ENCODING = "content-encoding"
"""The header that says how the payload is compressed, lower-case."""


def header_texts(records: Records) -> Sequence[Mapping[str, str]]:
    """The headers of each record by their names in lower case; a repeated one counts with its last value.

    Bytes that are no UTF-8 are read as U+FFFD. Headers without a value are left out.
    """
    column = records.header_column()
    if column is None:
        return [{}] * len(records)
    return [_texts(row) for row in column]


def topics_of(records: Records) -> Sequence[str]:
    """The topic of each record."""
    topics: list[str] = []
    for span, topic in zip(records.spans, records.topics, strict=True):
        topics += [topic] * (span.stop - span.start)
    return topics


def media_type(text: str | None) -> str:
    """The media type of a `content-type`, in lower case and without parameters; empty for none."""
    return "" if text is None else text.partition(";")[0].strip().lower()


def _texts(headers: Sequence[Header] | None) -> Mapping[str, str]:
    return {name.lower(): value.decode(errors="replace") for name, value in headers or () if value is not None}
