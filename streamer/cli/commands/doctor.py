"""`streamer doctor`: one page about this installation, this machine and service files, for a report."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from streamer.cli.options import AsJson, Env, Files, WithoutCode, no_code_given

if TYPE_CHECKING:
    from streamer.cli.doctor.line import Line, Section

_STYLES: Final = {"ok": "green", "warning": "yellow", "wrong": "bold red"}


def doctor(
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE", help="Service files to look at, too.")] = None,
    no_code: WithoutCode = False,
    env: Env = None,
    allowed: Files = None,
    as_json: AsJson = False,
) -> int:
    """Show on one page what a report of an error needs: versions, limits, settings, and the servers of service files.

    Every line is ok, a warning, or wrong, with what to do next. Passwords and other secrets are masked, and your home
    folder is written ~; read the page before you publish it all the same. With files it connects to their brokers and
    registries, reads no more than the newest record of a topic, and writes nothing. A server that does not answer
    costs a minute at most. The exit code is 2 for a wrong file, 1 if something else is wrong, otherwise 0.
    """
    from streamer.cli.folder import import_from_here
    from streamer.cli.terminal import quiet, say_json
    from streamer.observe.logs import configure

    configure("critical", as_json=False)
    quiet()
    given = files or []
    listed = no_code_given(not import_from_here(*given, no_code=no_code), env, allowed)
    from streamer.cli.doctor.page import sections

    shown: list[Section] = []
    for section in sections(given, listed):
        shown.append(section)
        if not as_json:
            _show(section)
    lines = [line for section in shown for line in section.lines]
    if as_json:
        say_json({"ok": all(line.state != "wrong" for line in lines), "sections": _plain(shown)}, indent=2)
    else:
        _summarize(lines)
    wrong = [line for line in lines if line.state == "wrong"]
    return 2 if any(line.of_file for line in wrong) else 1 if wrong else 0


def _plain(sections: Iterable[Section]) -> list[dict[str, object]]:
    return [
        {
            "title": _safe(section.title),
            "lines": [
                {"part": _safe(line.part), "state": line.state, "text": _safe(line.text), "advice": _safe(line.advice)}
                for line in section.lines
            ],
        }
        for section in sections
    ]


def _show(section: Section) -> None:
    from rich.text import Text

    from streamer.cli.terminal import cell, output

    screen = output()
    screen.print(cell(_safe(section.title), "bold"))
    width = max(len(line.part) for line in section.lines)
    for line in section.lines:
        # Neither wrapped nor padded: the page is to be copied.
        advice = (" -> ", cell(_line(line.advice))) if line.advice else ()
        state = cell(f"{line.state:<8}", _STYLES[line.state])
        screen.print(
            Text.assemble("  ", state, cell(f" {_safe(line.part):<{width}}  "), cell(_line(line.text)), *advice),
            soft_wrap=True,
        )
    screen.print()


def _summarize(lines: list[Line]) -> None:
    from streamer.cli.terminal import counted, say

    wrong = sum(line.state == "wrong" for line in lines)
    warnings = sum(line.state == "warning" for line in lines)
    say(f"{counted(len(lines), 'line')}: {counted(warnings, 'warning')}, {wrong} wrong")


def _line(text: str) -> str:
    return " ".join(_safe(text).split())


def _safe(text: str) -> str:
    """The text with secrets masked, and the user's home folder as ~."""
    from streamer.observe.shown import masked

    text = masked(text)
    try:
        home = str(Path.home())
    except RuntimeError:
        return text
    return text if home == "/" else text.replace(home, "~")
