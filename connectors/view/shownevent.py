"""`ShownEvent`: an event of a result in words, such as `person 3 entered crossing`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from pipelines.data.data import Data

MOST_EVENTS: Final = 20
"""The most events of a result that are shown."""
LONGEST: Final = 80
"""The most characters of a name in an event, and of an event that is a text."""


@dataclass(frozen=True, slots=True)
class ShownEvent:
    """Something that happened in a picture."""

    text: str
    """What happened, such as `person 3 entered crossing`."""
    time: int | None = None
    """When, in milliseconds since 1970; `None`: when the picture was taken."""


def events_of(value: Any) -> list[ShownEvent]:
    """The events of a result: a list of texts, or of `Data` with `event` and what else ZONES gives. Others are left
    out."""
    events = []
    for event in value if isinstance(value, list) else [value]:
        if isinstance(event, str) and event:
            events.append(ShownEvent(event[:LONGEST]))
        elif isinstance(event, Data) and isinstance(event.get("event"), str):
            moment = event.get("time")
            events.append(ShownEvent(_words(event), moment if type(moment) is int and moment > 0 else None))
    return events[:MOST_EVENTS]


def _words(event: Data) -> str:
    """An event in words: `person 3 entered crossing`."""
    what, place = _text(event, "event"), _text(event, "place")
    number = _text(event, "id")
    thing = " ".join(filter(None, (_text(event, "label") or ("object" if number else ""), number)))
    seconds = event.get("seconds")
    lasting = (
        f" {seconds:.0f}\N{NO-BREAK SPACE}s" if isinstance(seconds, (int, float)) and math.isfinite(seconds) else ""
    )
    words: tuple[str, ...]
    match what:
        case "enter":
            words = (thing, "entered", place)
        case "leave":
            after = f"after{lasting}" if lasting else ""
            words = (thing, "was lost in" if event.get("lost") is True else "left", place, after)
        case "dwell":
            words = (thing, "has been in", place, f"for{lasting}" if lasting else "")
        case "cross":
            direction = _text(event, "direction")
            words = (thing, "crossed", f"{place}, {direction}" if direction else place)
        case _:
            words = (what, thing, place)
    return " ".join(filter(None, words))


def _text(event: Data, key: str) -> str:
    value = event.get(key)
    return str(value)[:LONGEST] if isinstance(value, (str, int)) else ""
