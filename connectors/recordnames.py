"""The names of a record's metadata, which `into`, and `{record.NAME}` in a topic, may use."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pipelines.errors import nearest

RECORD_NAMES: Final = ("key", "timestamp", "topic", "partition", "offset", "source")
"""Metadata that the records of every source have, besides `headers.NAME`."""

_OPEN = ".NAME"
_HEADERS: Final = "headers.NAME"


def is_record_name(name: str, declared: Iterable[str] | None) -> bool:
    """Whether the records of a source that declares these names may have `name`.

    `declared` are `SourceConfig.record_names`, in which `levels.NAME` stands for every name that begins with `levels.`;
    `None`: the source is not known, and any name may be one of its own.
    """
    if declared is None:
        return bool(name) and not name.endswith(".")
    return name in RECORD_NAMES or matches(name, (_HEADERS, *declared))


def instead_of(name: str, declared: Iterable[str] | None) -> str:
    """For the error about an unknown name: `; did you mean "key"?; there are key, ..., and headers.NAME`."""
    names = list(dict.fromkeys((*RECORD_NAMES, *(declared or ()))))
    rest = name.partition(".")[2]
    members = (
        [family.removesuffix("NAME") + rest for family in (_HEADERS, *names) if family.endswith(_OPEN)] if rest else []
    )
    return f"{nearest(name, [*names, *members])}; there are {', '.join(names)} and {_HEADERS}"


def matches(name: str, declared: Iterable[str]) -> bool:
    """Whether this is one of the names that are declared, or a member of such a family, as `levels.line` is."""
    return any(_matches(name, each) for each in declared)


def _matches(name: str, declared: str) -> bool:
    if not declared.endswith(_OPEN):
        return name == declared
    family = declared.removesuffix("NAME")
    return name.startswith(family) and name != family
