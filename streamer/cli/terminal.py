"""Where text goes: results to stdout, everything about them to stderr."""

from __future__ import annotations

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
