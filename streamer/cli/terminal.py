"""What is printed: results on stdout, everything about them on stderr, nothing that a terminal would obey."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

WIDE = 200
"""Columns of a table whose reader is no terminal and has no width."""


def output() -> Console:
    """For results."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False, width=None if sys.stdout.isatty() else WIDE)


def notes() -> Console:
    """For progress and remarks."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, width=None if sys.stderr.isatty() else WIDE)


def printable(text: str) -> str:
    """The text with control characters escaped: what comes from records must not steer the reader's terminal."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def quiet() -> None:
    """Keep client libraries from writing to stderr by themselves: what matters of it ends up in our own errors."""
    logging.getLogger("connectors.kafka.client").setLevel(logging.CRITICAL)


def counted(number: int, what: str) -> str:
    """`1 record`, `2,000 records`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
