"""The fenced blocks of a page of the documentation, and the HTML comment before one that says what it is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent

_BLOCK: Final = re.compile(
    r"(?:^<!-- (?P<mark>[a-z]+)(?:: (?P<value>(?:(?!-->).)*?))? -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    """Path of the page, from the repository's root."""
    line: int
    """Where its text begins, counted from 1."""
    language: str
    mark: str
    """The first word of the comment before it: `pipeline` of `<!-- pipeline -->`; empty without one."""
    value: str
    """What follows the word: `a.py` of `<!-- file: a.py -->`."""
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks_of(page: Path) -> Iterator[Block]:
    """The blocks of a page, from top to bottom."""
    text = page.read_text()
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("text")) + 1
        yield Block(
            page.relative_to(ROOT).as_posix(),
            line,
            found["language"],
            found["mark"] or "",
            found["value"] or "",
            found["text"],
        )
