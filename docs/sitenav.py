"""The navigation of the site: a folder in mkdocs.yml (`steps/`) stands for all of its pages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from linkedpages import DOCS, title_of

_HEADING: Final = re.compile(r"^#+ (.*)$")
_ROW: Final = re.compile(r"^\| \[`?([^\]`]+)`?\]\(([\w-]+\.md)\)")


def expanded(nav: Any) -> Any:
    """A `nav` of mkdocs.yml in which each folder is the list of its pages.

    Raises:
        ValueError: A folder has pages that the tables of its README.md do not list.
    """
    if isinstance(nav, list):
        return [expanded(entry) for entry in nav]
    if isinstance(nav, dict):
        return {title: expanded(entry) for title, entry in nav.items()}
    if isinstance(nav, str) and nav.endswith("/"):
        return {title_of(DOCS / nav / "README.md"): _pages(nav)}
    return nav


def paths_in(nav: Any) -> Iterator[str]:
    """The paths of pages that a `nav` names, `steps/onnx.md`, in their order."""
    if isinstance(nav, str):
        yield nav
    elif nav:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from paths_in(entry)


def _pages(folder: str) -> list[Any]:
    """The README, then the pages that its tables list, in sections if several headings have such tables."""
    sections: dict[str, list[Any]] = {}
    heading = ""
    for line in (DOCS / folder / "README.md").read_text(encoding="utf-8").splitlines():
        if found := _HEADING.match(line):
            heading = found[1]
        elif row := _ROW.match(line):
            sections.setdefault(heading, []).append({row[1]: f"{folder}{row[2]}"})
    listed = {path for entries in sections.values() for entry in entries for path in entry.values()}
    missing = {f"{folder}{file.name}" for file in (DOCS / folder).glob("*.md")} - listed - {f"{folder}README.md"}
    if missing:
        raise ValueError(f"docs/{folder}README.md: its tables do not list {', '.join(sorted(missing))}")
    if len(sections) == 1:
        return [f"{folder}README.md", *next(iter(sections.values()))]
    return [f"{folder}README.md", *({heading: entries} for heading, entries in sections.items())]
