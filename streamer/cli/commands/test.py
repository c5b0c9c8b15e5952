"""`streamer test`: a service on cases, without a broker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamer.cli.options import AsJson, Env, Files, WithoutCode, no_code_given

if TYPE_CHECKING:
    from streamer.testing.trial import Tried


def test(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A service file with one service.")],
    cases: Annotated[
        list[Path] | None,
        typer.Argument(metavar="CASES", help="Files or folders of cases; by default the folder `cases` beside FILE."),
    ] = None,  # noqa: PT028 - a command, not a test
    no_code: WithoutCode = False,  # noqa: PT028 - as above
    env: Env = None,  # noqa: PT028 - as above
    allowed: Files = None,  # noqa: PT028 - as above
    as_json: AsJson = False,  # noqa: PT028 - as above
) -> int:
    """Run a service's pipeline on cases, with connectors in memory, and compare the results with the expected ones.

    A case is a YAML or JSON file with `input` (the values of a record, or of several), and `expect` (values of the
    result) or `fails` (the step that has to fail). A line of a .jsonl file is a case, too. A case without an
    expectation, such as a picture, only has to run; its result is shown. The exit code is 1 if a case is not as
    expected.
    """
    from streamer.cli.folder import import_from_here
    from streamer.cli.terminal import counted, quiet, say, say_json
    from streamer.definition.loading import load
    from streamer.observe.logs import configure
    from streamer.testing.cases import cases_of
    from streamer.testing.trial import tried

    configure("error", as_json=False)
    quiet()
    service = load(file, no_code=no_code_given(not import_from_here(file, no_code=no_code), env, allowed))
    outcomes = []
    for case in cases_of(file, cases or []):
        outcome = tried(service, case)
        outcomes.append(outcome)
        if not as_json:
            _show(outcome)
    wrong = sum(not outcome.ok for outcome in outcomes)
    if as_json:
        documents = [_for_machines(outcome) for outcome in outcomes]
        say_json({"ok": not wrong, "service": service.name, "cases": documents}, indent=2)
    else:
        say(f"{counted(len(outcomes), 'case')}: {len(outcomes) - wrong} ok, {wrong} wrong")
    return 1 if wrong else 0


def _show(outcome: Tried) -> None:
    from rich.text import Text

    from streamer.cli.terminal import cell, output, plain
    from streamer.observe.values import line

    mark = cell("ok   ", "green") if outcome.ok else cell("wrong", "bold red")
    output().print(Text.assemble(mark, cell(f"  {outcome.case.name}  "), cell(f"{outcome.seconds:.2f} s", "dim")))
    for problem in outcome.problems:
        plain(f"       {' '.join(problem.split())}")
    if outcome.ok and outcome.case.expect is None:
        for result in outcome.results:
            plain(f"       {'no payload' if result is None else line(result)}", "dim")


def _for_machines(outcome: Tried) -> dict[str, Any]:
    from streamer.observe.values import summary

    return {
        "name": outcome.case.name,
        "ok": outcome.ok,
        "problems": outcome.problems,
        "results": [None if result is None else summary(result) for result in outcome.results],
        "seconds": round(outcome.seconds, 3),
    }
