"""The packages that streamer needs, and those of its extras: which are installed here."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, distribution, version
from typing import Final, NamedTuple

from pipelines.errors import DISTRIBUTION

_NAME: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?")
_EXTRA: Final = re.compile(r"""extra\s*==\s*["']([\w.-]+)["']""")
_BELOW: Final = re.compile(r"""python_version\s*<\s*["'](\d+)\.(\d+)["']""")
"""The markers of our own metadata; others count as true."""


DEVELOPERS: Final = frozenset({"dev", "docs"})
"""Extras for working on streamer itself, which nobody needs who uses it."""


class Extra(NamedTuple):
    """What an extra of streamer needs, by the names of distributions, each once and sorted."""

    installed: list[str]
    missing: list[str]


def extras() -> dict[str, Extra]:
    """The extras for users by name, and what streamer always needs, with the key "".

    Empty if streamer itself is not installed.
    """
    try:
        requirements = distribution(DISTRIBUTION).requires or []
    except PackageNotFoundError:
        return {}
    needs = _needs(requirements)
    return {extra: _split(set(_all(extra, needs))) for extra in needs if extra not in DEVELOPERS}


def _split(names: Iterable[str]) -> Extra:
    there = {name: version_of(name) is not None for name in sorted(names)}
    return Extra([name for name in there if there[name]], [name for name in there if not there[name]])


def _needs(requirements: Iterable[str]) -> dict[str, set[tuple[str, str]]]:
    """By extra, what it names: a distribution, with the extra of it that is wanted, or "" for none."""
    needs: dict[str, set[tuple[str, str]]] = {"": set()}
    for requirement in requirements:
        wanted, _, marker = requirement.partition(";")
        match = _NAME.match(wanted.strip())
        if match is None:
            continue
        extra = _EXTRA.search(marker)
        named = needs.setdefault(extra[1] if extra else "", set())
        below = _BELOW.search(marker)
        if below is None or sys.version_info < (int(below[1]), int(below[2])):
            named |= {(match[1], inner.strip()) for inner in (match[2] or "").split(",")}
    return needs


def _all(extra: str, needs: dict[str, set[tuple[str, str]]], seen: frozenset[str] = frozenset()) -> Iterator[str]:
    for name, inner in needs.get(extra, set()):
        if name != DISTRIBUTION:
            yield name
        elif inner not in seen:
            yield from _all(inner, needs, seen | {extra})


def version_of(name: str) -> str | None:
    """The version of an installed distribution; `None` if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
