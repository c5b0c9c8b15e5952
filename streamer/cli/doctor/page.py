"""The sections of the page that `streamer doctor` shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from streamer.cli.doctor.asking import asked
from streamer.cli.doctor.installation import installation
from streamer.cli.doctor.line import Line, Section
from streamer.cli.doctor.machine import machine
from streamer.cli.doctor.packages import packages
from streamer.cli.doctor.services import sections as sections_of
from streamer.cli.doctor.services import variables_in
from streamer.cli.doctor.variables import variables
from streamer.definition.nocode import NoCode

_WAIT: Final = 60.0
"""Seconds for each section: importing libraries from a slow disk may take long."""


def sections(files: Sequence[Path], no_code: NoCode | None) -> Iterator[Section]:
    """All sections, as they are done: of this installation first, then of each service file.

    Args:
        files: Service files.
        no_code: The exceptions for files that may run no code; `None` where they may.
    """
    named = {name for file in files for name in variables_in(file)}
    looks: dict[str, Callable[[], list[Line]]] = {
        "streamer": installation,
        "packages": packages,
        "machine": machine,
        "environment": partial(variables, named),
    }
    for title, look in looks.items():
        yield Section(title, asked(title, look, _WAIT))
    for file in files:
        yield from sections_of(file, no_code)
