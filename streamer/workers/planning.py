"""The short-lived process that reads service files for the parent of workers (`streamer.workers.plan`)."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import typer

from pipelines.errors import DefinitionError, StreamerError
from streamer.cli.commands.run import loaded
from streamer.cli.folder import import_from_here
from streamer.cli.options import no_code_given, runners_given
from streamer.definition.service import Service
from streamer.observe.logs import configure
from streamer.observe.shown import masked
from streamer.workers.division import refusals
from streamer.workers.layout import WORKER_VARIABLE
from streamer.workers.plan import Asked, Plan, PlannedService, failure


def plan(asked: Asked) -> Plan:
    """The plan for what the command line asks. Sources are put back, if they are to be.

    Raises `DefinitionError` for wrong files and services that workers cannot divide, `ConnectorError` for a source that
    cannot be put back.
    """
    services = _services(asked, worker=0)
    if asked.workers > 1:
        others = _services(asked, worker=1)
        problems = [
            problem for service, other in zip(services, others, strict=True) for problem in refusals(service, other)
        ]
        if problems:
            raise DefinitionError(*problems)
    for service in services:
        for source in service.sources:
            (source if asked.start_from is None else source.starting(asked.start_from)).put_back()
    return Plan(tuple(map(_planned, services)))


def _services(asked: Asked, worker: int) -> list[Service]:
    os.environ[WORKER_VARIABLE] = str(worker)
    files = list(map(Path, asked.files))
    no_code = no_code_given(
        not import_from_here(*files, no_code=asked.no_code), list(asked.env), list(map(Path, asked.allowed))
    )
    return loaded(files, runners_given(list(asked.runners)), no_code)


def _planned(service: Service) -> PlannedService:
    control = service.control
    if control is None:
        return PlannedService(service.name, service.limits.stuck)
    token = None if control.token is None else control.token.get_secret_value()
    return PlannedService(service.name, service.limits.stuck, control.listen, token, control.hosts)


def main() -> None:
    """Read what is asked from standard input, print the plan, or the error, to standard output."""
    # What imported code prints must not get into the plan.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        asked = Asked.from_json(sys.stdin.read())
        configure("warning", as_json=asked.log_json)
        text = plan(asked).to_json()
    except StreamerError as error:
        problems = error.problems if isinstance(error, DefinitionError) else (str(error),)
        text = failure([masked(problem) for problem in problems], wrong=isinstance(error, DefinitionError))
    except typer.BadParameter as error:
        text = failure([error.message], wrong=True)
    with answer:
        answer.write(text)


if __name__ == "__main__":
    main()
