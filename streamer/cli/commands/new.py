"""`streamer new`: the files of a service to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from streamer.cli.options import AsJson

Kind = Literal["kafka", "mqtt", "file", "memory"]
SourceKind = Literal["kafka", "mqtt", "file", "memory", "camera"]


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the service: letters, digits, - and _.")],
    source: Annotated[SourceKind, typer.Option("--source", help="Where records come from.")] = "kafka",
    sink: Annotated[
        Kind | None, typer.Option("--sink", help="Where results go; by default as the source, of cameras a file.")
    ] = None,
    folder: Annotated[Path | None, typer.Option("--folder", help="Where to; by default a new folder NAME.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a small service that works: service file, pipeline, a step in Python, cases, records to try it with.

    Nothing is overwritten: a folder that holds something is an error.
    """
    from streamer.cli.terminal import say, say_json
    from streamer.definition.scaffold import create, files_of

    place = Path(name) if folder is None else folder
    files = files_of(name, source, sink or ("file" if source == "camera" else source))
    create(place, files)
    if as_json:
        say_json({"folder": str(place), "files": list(files)})
        return
    say(f"{place}:")
    for path in files:
        say(f"  {path}")
    say(f"Next: streamer test {place / f'{name}.yaml'}")
