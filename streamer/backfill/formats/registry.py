"""The formats of inputs that there are, by the ends of files' names."""

from __future__ import annotations

from typing import Final

from streamer.backfill.formats.columnar import Arrow, Parquet
from streamer.backfill.formats.imagefiles import Images
from streamer.backfill.formats.inputformat import InputFormat
from streamer.backfill.formats.jsonlines import JsonLines
from streamer.backfill.formats.letters import Letters

FORMATS: Final[dict[str, InputFormat]] = {
    each.name: each for each in (Parquet(), Arrow(), JsonLines(), Images(), Letters())
}
"""The formats by their names."""


def format_of(name: str) -> InputFormat | None:
    """The format of a file of this name; `None`: there is none of its end."""
    lower = name.lower()
    return next((each for each in FORMATS.values() if lower.endswith(each.suffixes)), None)
