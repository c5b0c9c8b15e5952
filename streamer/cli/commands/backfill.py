"""`streamer backfill`: a service's pipeline over files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streamer.cli.options import AsJson, Env, Files, Runners, WithoutCode, no_code_given, runners_given

if TYPE_CHECKING:
    from streamer.backfill.engines.engine import Engine
    from streamer.backfill.summary import BackfillSummary
    from streamer.definition.nocode import NoCode
    from streamer.definition.service import Service

_SHOWN = 10
"""The most pieces that are named as not done."""


def backfill(
    file: Annotated[Path, typer.Argument(metavar="SERVICE", help="A service file.")],
    inputs: Annotated[
        list[str],
        typer.Option(
            "--input",
            metavar="FILES",
            help="Files, as a path, a folder, or a pattern in quotes, 'data/day=*/*.parquet', here or behind s3://, "
            "gs://, az:// or hf://; may be repeated. Or letters: the service's own dead letters.",
        ),
    ],
    output: Annotated[
        str,
        typer.Option("--output", metavar="FOLDER", help="Where results go; a later run goes on with what is missing."),
    ],
    engine: Annotated[
        Literal["local", "ray"],
        typer.Option("--engine", help="What runs the pieces: processes of this machine, or a cluster of Ray."),
    ] = "local",
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            metavar="N",
            min=1,
            help="How many processes; by default one for each core, or CPU of the cluster.",
        ),
    ] = None,
    format: Annotated[
        Literal["parquet", "arrow", "jsonl"], typer.Option("--format", help="The format of results.")
    ] = "parquet",
    again: Annotated[
        bool, typer.Option("--again", help="Do all of it anew, also what is done or was made by another pipeline.")
    ] = False,
    service: Annotated[
        str | None, typer.Option("--service", metavar="NAME", help="Which service, if SERVICE defines several.")
    ] = None,
    runner: Runners = None,
    no_code: WithoutCode = False,
    env: Env = None,
    allowed: Files = None,
    as_json: AsJson = False,
) -> int:
    """Run a service's pipeline over files of Parquet, Arrow, JSON lines or images, and write its results to files.

    No broker is needed: sources and sinks of the service are not opened. All cores are used, or with --engine ray all
    CPUs of a cluster: that of RAY_ADDRESS, else one on this machine, else one that is started for it. Records that
    fail are written apart, below FOLDER/_errors, with the error. A run that was stopped or killed is gone on with by
    the same command; what is done, and has not changed, is not done again.

    After SIGTERM or Ctrl-C no more is begun, what is half done is left to the next run, and the exit code is 0; a
    second signal ends at once, with 130. The exit code is 1 if files could not be read or written.
    """
    import threading

    from streamer.backfill.driver import backfill as run
    from streamer.cli.backfillprogress import progress_on
    from streamer.cli.folder import import_from_here
    from streamer.cli.signals import draining
    from streamer.cli.terminal import FAILED, say_json
    from streamer.observe.logs import configure

    configure("warning", as_json=False)
    listed = no_code_given(not import_from_here(file, no_code=no_code), env, allowed)
    chosen = _chosen(file, service, listed).with_runners(runners_given(runner))
    stop = threading.Event()
    with (
        draining(stop.set, "stopping: what is half done is left to the next run (once more to end at once)"),
        progress_on() as watcher,
    ):
        summary = run(
            chosen,
            inputs,
            output,
            _engine(engine, workers),
            watcher=watcher,
            stop=stop,
            format=format,
            again=again,
        )
    _say(summary, output)
    if as_json:
        say_json(summary.to_dict())
    return FAILED if summary.failed else 0


def _chosen(file: Path, name: str | None, no_code: NoCode | None) -> Service:
    from pipelines.errors import DefinitionError, nearest
    from streamer.definition.loading import load_all

    services = {service.name: service for service in load_all(file, no_code=no_code)}
    if name is None and len(services) == 1:
        return next(iter(services.values()))
    names = ", ".join(services)
    if name is None:
        raise DefinitionError(f"{file} defines several services: choose one with --service ({names})")
    if name not in services:
        raise DefinitionError(f'{file}: there is no service "{name}"{nearest(name, list(services))}; there are {names}')
    return services[name]


def _engine(name: str, workers: int | None) -> Engine:
    if name == "ray":
        from streamer.backfill.engines.ray import RayEngine

        return RayEngine(workers)
    from streamer.backfill.engines.local import LocalEngine

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return LocalEngine(workers or cores or 1)


def _say(summary: BackfillSummary, output: str) -> None:
    from streamer.backfill.worker import ERRORS
    from streamer.cli.terminal import complain, counted, remark

    notes = [f"{counted(summary.pieces, 'piece')} done in {summary.seconds:.1f} s"]
    notes += [f"{summary.rows:,} rows", f"{summary.results:,} results", f"{summary.errors:,} errors"]
    notes += [f"{summary.before:,} done before"] if summary.before else []
    notes += [f"{summary.changed:,} of files that have changed"] if summary.changed else []
    notes += [f"{summary.left:,} left for the next run"] if summary.left else []
    remark(f"{summary.service}: {', '.join(notes)}")
    if summary.error is not None:
        remark(f"records that failed are in {output.rstrip('/')}/{ERRORS}, such as: {summary.error}")
    for piece, reason in summary.failed[:_SHOWN]:
        complain(f"{piece}: {reason}")
    if len(summary.failed) > _SHOWN:
        complain(f"{len(summary.failed) - _SHOWN:,} more pieces are not done (--json names all)")
