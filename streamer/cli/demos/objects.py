"""The objects example of `streamer demo`: people and cups that are counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from streamer.cli.demos.ending import next_steps, service_file

if TYPE_CHECKING:
    from rich.console import Console

    import streamer.demo.counting.play as counting
    from streamer.demo.stop import Stop


def run(
    progress: Callable[[str], None], console: Console, update: Callable[[str], None], stop: Stop
) -> counting.ObjectsOutcome | None:
    """Run it to its end, or until `stop` is set; `None` if that was before there was anything to show."""
    from streamer.demo.counting.play import play

    page = ""

    def begun(address: str, seconds: float) -> None:
        nonlocal page
        page = address
        console.print(f"[bold]watch {address}[/] in a browser, for {seconds:.0f} s")

    def tell(counts: Mapping[str, Mapping[str, int]]) -> None:
        if console.is_terminal:
            now = "   ".join(f"{name} {sum(ways.values())}" for name, ways in counts.items())
            update(f"{page}   passed the middle: {now}")

    return play(progress=progress, begun=begun, tell=tell, stop=stop)


def report(outcome: counting.ObjectsOutcome, as_json: bool) -> int:
    """Print its summary, as JSON if asked. Returns the exit code."""
    import json

    from rich.table import Table

    from streamer.cli.invocation import program
    from streamer.cli.terminal import output

    code = 1 if outcome.whole and not outcome.right else 0
    if as_json:
        print(json.dumps(outcome.to_dict()))
        return code
    table = Table(box=None, padding=(0, 2))
    for heading in ("passed the middle", "to the right", "to the left", "in the film"):
        justify: Literal["left", "right"] = "left" if heading == "passed the middle" else "right"
        table.add_column(heading, justify=justify, header_style="dim")
    for name, film in outcome.truth.items():
        seen = outcome.counts.get(name, {"in": 0, "out": 0})
        table.add_row(name, str(seen["in"]), str(seen["out"]), f"{film['in']}, {film['out']}")
    output().print(table)
    output().print(f"  {outcome.pictures} pictures", style="dim")
    if not outcome.whole:
        output().print("  stopped before the end of the film", style="yellow")
    elif not outcome.right:
        output().print("  that is not what there is in the film", style="red")
    streamer, service = program(), service_file("objects")
    lines = [
        f"  {service}    the service: write the URL of your camera into it",
        f"  {streamer} check {service}    its parts",
        f"  {streamer} demo cameras    four cameras",
    ]
    output().print(next_steps(lines, None))
    return code
