"""The application of all commands."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Sequence
from typing import Annotated, Any, Final

import typer

from streamer.cli.commands.backfill import backfill
from streamer.cli.commands.broker import broker
from streamer.cli.commands.build import build
from streamer.cli.commands.check import check
from streamer.cli.commands.demo import demo
from streamer.cli.commands.doctor import doctor
from streamer.cli.commands.installed.formats import formats
from streamer.cli.commands.installed.plugins import plugins
from streamer.cli.commands.installed.steps import steps
from streamer.cli.commands.models import models
from streamer.cli.commands.new import new
from streamer.cli.commands.outbox import outbox
from streamer.cli.commands.replay import replay
from streamer.cli.commands.run import run
from streamer.cli.commands.schema import schema
from streamer.cli.commands.send import send
from streamer.cli.commands.serve import serve
from streamer.cli.commands.state import state
from streamer.cli.commands.tap import tap
from streamer.cli.commands.test import test
from streamer.cli.terminal import WRONG

DONE: Final = 0
"""Done, or drained after a first signal."""
CUT_SHORT: Final = 130
"""Ended at once by a second signal."""

COMMANDS: Final[dict[Any, str]] = {
    run: "streamer run digits.yaml",
    serve: "streamer serve model.onnx",
    models: "streamer models http://127.0.0.1:8000",
    check: "streamer check digits.yaml --connect",
    test: "streamer test digits.yaml",
    new: "streamer new sensors --source kafka",
    demo: "streamer demo",
    tap: "streamer tap digits.predictions --from earliest --count 5",
    send: "streamer send digits.images photos/*.png",
    backfill: "streamer backfill digits.yaml --input 'data/day=*/*.parquet' --output results",
    replay: "streamer replay digits.yaml --step decode --dry-run",
    outbox: "streamer outbox digits.yaml --resend",
    state: "streamer state show vibration.yaml",
    schema: "streamer schema --out service.schema.json",
    steps: "streamer steps",
    formats: "streamer formats",
    plugins: "streamer plugins",
    doctor: "streamer doctor digits.yaml",
    build: "streamer build digits.yaml",
    broker: "streamer broker --topic digits.images:4",
}
"""Every command with its example."""

app = typer.Typer(
    name="streamer",
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Begin with: streamer demo",
)


def _help(command: Any) -> str:
    # Typer keeps the line ends of a docstring, which are right for the source's width only.
    return "\n\n".join(" ".join(part.split()) for part in (inspect.getdoc(command) or "").split("\n\n"))


for _command, _example in COMMANDS.items():
    app.command(epilog=f"Example: {_example}", help=_help(_command))(_command)


def _print_version(wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import version

    from pipelines.errors import DISTRIBUTION
    from pipelines.hotpath import choose, explained

    path, reason = choose().report
    print(f"{DISTRIBUTION} {version(DISTRIBUTION)}")
    print("hot path: compiled" if path == "native" else f"hot path: plain Python, {explained(reason)}")
    raise typer.Exit


@app.callback()
def streamer(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version, and which hot path is taken.", callback=_print_version, is_eager=True
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Errors with their traceback; anywhere on the line.")] = False,
) -> None:
    """Run models on records as they arrive: topic in, pipeline, topic out, nothing lost."""
    if not os.environ.get("STREAMER_NO_CODE"):
        return
    from streamer.cli.folder import import_nothing_from_here
    from streamer.definition.nocode import code_allowed

    if not code_allowed():
        # First, because looking for plug-ins may import modules from here.
        import_nothing_from_here()


def invoke(arguments: Sequence[str]) -> int:
    """Run the command line `arguments`; returns the exit code. Errors go to stderr, three lines at most."""
    from streamer.cli.terminal import json_lines

    json_lines(False)
    debug = "--debug" in arguments
    given = [argument for argument in arguments if argument != "--debug"]
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = _show_warning
        try:
            result = app(given or ["--help"], prog_name="streamer", standalone_mode=False)
        except (KeyboardInterrupt, typer.Abort):
            return CUT_SHORT
        except Exception as error:  # noqa: BLE001 - every error is shown as a sentence, not as a traceback
            return _failed(error, debug)
    if not given:
        return WRONG
    return result if isinstance(result, int) else DONE


def _failed(error: Exception, debug: bool) -> int:
    from streamer.cli.terminal import complain, fail

    if not hasattr(error, "format_message"):
        return fail(error, debug=debug)
    # A usage error, as Typer raises it; its class is not in Typer's public interface.
    command = getattr(getattr(error, "ctx", None), "command_path", "streamer")
    complain(f"{error.format_message()}\nTry: {command} --help", error if debug else None)
    return WRONG


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    from streamer.cli.terminal import warn

    warn(message)
