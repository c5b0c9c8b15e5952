"""docs/cli.md, written from the commands themselves: `python -m streamer.cli.reference > docs/cli.md`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

from streamer.cli.app import COMMANDS

_HEAD = """# Command line

    streamer COMMAND ...

Exit codes: 0 done, or stopped by a first SIGTERM or Ctrl-C with all records in flight finished; 1 failed while running;
2 wrong use, or a wrong file; 130 ended at once by a second signal. Errors are three lines at most, on stderr;
`--debug`, anywhere on the line, adds the traceback. `--json` prints results for machines on stdout. Brokers are those
of `-b`, else of the environment variable `KAFKA_BOOTSTRAP_SERVERS`, else localhost:9092. Functions and connectors of
your own are imported from the working directory and from the service file's folder, after all installed modules.

This page is written from the commands' own help: `python -m streamer.cli.reference > docs/cli.md`.
"""

_PICTURES = {
    "check": """\
![A terminal: streamer check lists the parts of the service fans, each ok; streamer send sends three records; streamer
tap shows two results, and the dead letter of the record in which a value was missing.](pictures/check-and-tap.svg)
""",
    "demo": """\
![A terminal in which streamer demo runs: predictions a second, latencies and batch sizes as they change, the newest
images with the digits that the model sees in them, and at the end what was sent, predicted and
lost.](pictures/demo.svg)
""",
}
"""Below the example of a command: what a terminal shows."""


def reference() -> str:
    """The page as Markdown."""
    return "\n".join([_HEAD, *(_command(function, example) for function, example in COMMANDS.items())])


def _command(function: Callable[..., Any], example: str) -> str:
    rows = list(_rows(function))
    name = function.__name__
    table = ["| | |", "| --- | --- |", *rows, ""] if rows else []
    picture = [_PICTURES[name]] if name in _PICTURES else []
    return "\n".join(
        [f"## streamer {name}", "", inspect.getdoc(function) or "", "", f"    {example}", "", *picture, *table]
    )


def _rows(function: Callable[..., Any]) -> Iterator[str]:
    hints = get_type_hints(function, include_extras=True)
    for name, parameter in inspect.signature(function).parameters.items():
        kind, described = get_args(hints[name])
        text = described.help or ""
        if choices := _choices(kind):
            text += f" One of {', '.join(choices)}."
        if parameter.default not in (inspect.Parameter.empty, None, False):
            text += f" Default: {parameter.default}."
        names = ", ".join(f"`{name}`" for name in _names(described))
        cell = text.replace("|", "\\|")
        yield f"| {names} | {cell} |"


def _names(described: Any) -> list[str]:
    # In an annotation Typer takes the first name for the default, and puts that right when it builds the command.
    written = (described.default, *(described.param_decls or ()))
    return [name for name in written if isinstance(name, str) and name.startswith("-")] or [described.metavar]


def _choices(kind: Any) -> list[str]:
    if get_origin(kind) is Literal:
        return list(map(str, get_args(kind)))
    return [choice for part in get_args(kind) for choice in _choices(part)]


if __name__ == "__main__":
    print(reference(), end="")
