"""`streamer new`: the files of a service to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from streamer.cli.options import AsJson

Kind = Literal["kafka", "mqtt", "http", "file", "memory", "view"]
SourceKind = Literal["kafka", "mqtt", "http", "file", "memory", "camera"]


def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the service: letters, digits, - and _.")],
    source: Annotated[
        SourceKind | None,
        typer.Option("--source", help="Where records come from; by default kafka, for a detector camera."),
    ] = None,
    sink: Annotated[
        Kind | None,
        typer.Option("--sink", help="Where results go; by default as the source, for camera a file, or a page."),
    ] = None,
    folder: Annotated[Path | None, typer.Option("--folder", help="The folder to write; by default NAME.")] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            metavar="FILE",
            help="An ONNX model to run: a detector, or another, to whose inputs records are made.",
        ),
    ] = None,
    codec: Annotated[
        str | None,
        typer.Option("--codec", help="The codec of payloads; with --model json.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a small service that runs: service file, pipeline, a step in Python or a model, cases, sample records.

    It overwrites no file: if the folder exists and is not empty, that is an error.
    """
    from streamer.cli.terminal import say, say_json
    from streamer.definition.detectorscaffold import is_detector
    from streamer.definition.scaffold import create, files_of

    place = Path(name) if folder is None else folder
    detects = model is not None and is_detector(model)
    codec = "json" if codec is None and model is not None else codec
    source = source or ("camera" if detects else "kafka")
    results = sink or ("view" if detects else "file" if source == "camera" else source)
    files = files_of(name, source, results, codec=codec, model=model)
    create(place, files)
    if as_json:
        say_json({"folder": str(place), "files": list(files)})
        return
    say(f"{place}:")
    for path in files:
        say(f"  {path}")
    say(f"Next: streamer test {place / f'{name}.yaml'}")
