"""The level and the form of the log, as the environment says them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, get_args

Level = Literal["debug", "info", "warning", "error"]
VARIABLE: Final = "STREAMER_LOG"
"""Environment variable with the level and the form of the log: `debug`, `json`, `info,text`."""


def from_environment(environment: Mapping[str, str]) -> tuple[Level | None, bool | None]:
    """The level, and whether the log is JSON, as STREAMER_LOG says; `None` for a setting that it does not name.

    Raises `StreamerError` for a word that is neither a level nor a form, and for two of a kind.
    """
    # The command line imports this module to print its help, and nothing heavy for that.
    from pipelines.errors import StreamerError, nearest

    level: Level | None = None
    as_json: bool | None = None
    levels: dict[str, Level] = {level: level for level in get_args(Level)}
    forms = ("json", "text")
    for word in filter(None, (part.strip().lower() for part in environment.get(VARIABLE, "").split(","))):
        if word in levels and level is None:
            level = levels[word]
        elif word in forms and as_json is None:
            as_json = word == "json"
        elif word in levels or word in forms:
            raise StreamerError(f'{VARIABLE}={environment[VARIABLE]}: one level and one form, for example "info,json"')
        else:
            known = [*levels, *forms]
            raise StreamerError(
                f'{VARIABLE}: "{word}" is neither a level nor a form; known are '
                f"{', '.join(known)}{nearest(word, known)}"
            )
    return level, as_json
