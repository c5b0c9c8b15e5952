"""`streamer check`: checks of a service before it runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamer.cli.options import AsJson, Env, Files, Runners, WithoutCode, no_code_given, runners_given

if TYPE_CHECKING:
    from pipelines.errors import DefinitionError
    from streamer.cli.findings import Finding
    from streamer.cli.serving.requests import Requests


def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Service files.")],
    connect: Annotated[
        bool, typer.Option("--connect", help="Also ask the brokers for their topics, and open the whole pipeline.")
    ] = False,
    runner: Runners = None,
    no_code: WithoutCode = False,
    env: Env = None,
    allowed: Files = None,
    as_json: AsJson = False,
) -> int:
    """Check service files: their text, steps and runners, packages, models, sources and sinks.

    Where a step needs a value that no record has, a model takes no arrays of the type and shape that the step before
    makes, or results do not fit the schema of their sink, that is wrong too, as far as schemas and steps tell. It
    connects to brokers only with --connect. The exit code is 2 for a wrong file, and 1 if brokers cannot be reached.
    """
    from pipelines.errors import DefinitionError
    from streamer.cli.findings import examined, keys_at_odds, requests_finding
    from streamer.cli.folder import import_from_here
    from streamer.cli.reach import reached
    from streamer.cli.terminal import quiet, say_json
    from streamer.definition.loading import load_all
    from streamer.definition.refusals import refused
    from streamer.observe.logs import configure

    configure("error", as_json=False)
    quiet()
    listed = no_code_given(not import_from_here(*files, no_code=no_code), env, allowed)
    runners = runners_given(runner)
    wrong = unreachable = 0
    reports: list[dict[str, Any]] = []
    for file in files:
        try:
            services = [service.with_runners(runners) for service in load_all(file, no_code=listed)]
        except DefinitionError as error:
            wrong += 1
            report = {"file": str(file), "service": None, "ok": False, "error": str(error)}
            reports.append({**report, "errors": list(error.problems)})
            _show_errors(file, error, as_json)
            continue
        for service in services:
            seen = examined(service)
            findings = seen.findings
            wrong += sum(not finding.ok for finding in findings)
            # Connecting might run the refused code.
            if connect and not refused(service):
                further = reached(service)
                unreachable += sum(not finding.ok for finding in further)
                misfits = [
                    finding for finding in keys_at_odds(service, seen.steps, ask=True) if finding not in findings
                ]
                wrong += len(misfits)
                findings += [*further, *misfits]
            requests: list[Requests] = []
            if all(finding.ok for finding in findings) and not refused(service):
                further, requests = requests_finding(service, connect=connect)
                wrong += sum(not finding.ok for finding in further)
                findings += further
            reports.append(_report(file, service.name, findings, requests))
            if not as_json:
                _show(file, service.name, findings, requests)
    if as_json:
        say_json({"ok": not wrong and not unreachable, "services": reports}, indent=2)
    return 2 if wrong else 1 if unreachable else 0


def _show_errors(file: Path, error: DefinitionError, as_json: bool) -> None:
    """Show all errors of a file: many of them on stdout, as stderr gets three lines at most."""
    from pipelines.errors import SHOWN_PROBLEMS
    from streamer.cli.terminal import complain, counted
    from streamer.observe.shown import shown

    if as_json or len(error.problems) <= SHOWN_PROBLEMS:
        complain(str(error))
        return
    for problem in error.problems:
        print(shown(problem))
    complain(f"{file}: {counted(len(error.problems), 'thing')} are wrong")


def _report(file: Path, name: str, findings: list[Finding], requests: list[Requests]) -> dict[str, Any]:
    from streamer.observe.shown import masked

    asked = [{"source": each.source, "url": each.url, "grpc": each.grpc, "curl": each.curl} for each in requests]
    rows = [{"part": masked(finding.part), "ok": finding.ok, "text": masked(finding.text)} for finding in findings]
    report = {"file": str(file), "service": name, "ok": all(finding.ok for finding in findings), "findings": rows}
    return {**report, "requests": asked} if asked else report


def _show(file: Path, name: str, findings: list[Finding], requests: list[Requests]) -> None:
    from rich.table import Table

    from streamer.cli.terminal import cell, complain, counted, output, say

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        mark = cell("ok", "green") if finding.ok else cell("wrong", "bold red")
        table.add_row(mark, cell(finding.part, "bold"), cell(" ".join(finding.text.split())))
    wrong = sum(not finding.ok for finding in findings)
    output().print(cell(f"{file}: service {name}"))
    output().print(table)
    for each in requests:
        # Not in the table, which would break the line.
        say(f"a first request: {each.curl}")
    if wrong:
        complain(f"{file}: service {name}: {counted(wrong, 'thing')} {'is' if wrong == 1 else 'are'} wrong")
