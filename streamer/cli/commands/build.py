"""`streamer build`: writes a folder with all that a container of a service needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamer.cli.options import AsJson

if TYPE_CHECKING:
    from streamer.build.folder import Built


def build(
    file: Annotated[Path, typer.Argument(metavar="SERVICE", help="A service file.")],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", help="The folder to write; by default build/ and the file's name (of service.yaml: its folder's)."
        ),
    ] = None,
    also: Annotated[
        list[str] | None,
        typer.Option("--with", help="A package that is needed and cannot be found in the definition; may be repeated."),
    ] = None,
    wheels: Annotated[
        bool,
        typer.Option("--wheels", help="Add wheels of all packages, as installed here: they install without network."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write a folder for `docker build`: the files of one service, its pinned requirements, a Dockerfile.

    The requirements are streamer-inference with the extras that the service needs, the plug-ins that it uses, and the
    packages that its functions import, all in the versions that are installed here. Packages that no package index has
    are added as wheels.
    """
    from streamer.build.folder import build as build_folder
    from streamer.cli.folder import import_from_here
    from streamer.cli.terminal import quiet, remark, say_json
    from streamer.definition.naming import default_name
    from streamer.observe.logs import configure

    configure("error", as_json=False)
    quiet()
    import_from_here(file)
    built = build_folder(
        file,
        out or Path("build", default_name(file)),
        also=also or (),
        wheelhouse=wheels,
        folders=[Path.cwd()],
        progress=lambda text: None if as_json else remark(text),
    )
    if not as_json:
        _show(built)
        return
    from dataclasses import asdict

    say_json({**asdict(built), "folder": str(built.folder)}, indent=2)


def _show(built: Built) -> None:
    from streamer.cli.terminal import cell, output

    screen = output()
    screen.print(cell(f"{built.folder}: {', '.join(built.services)}", "bold"))
    for name, part in built.why.items():
        screen.print(cell(f"  {name}: {part}"))
    screen.print(f"  {len(built.requirements)} requirements, {len(built.wheels)} wheels, {len(built.files)} files")
    if built.environment:
        screen.print(cell(f"  reads {', '.join(built.environment)} from the environment"))
    for note in built.notes:
        screen.print(cell(f"  note: {note}", "yellow"))
    screen.print(cell(f"docker build -t {built.services[0]} {built.folder}"))
