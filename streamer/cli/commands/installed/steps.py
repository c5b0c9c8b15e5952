"""`streamer steps`: lists the types of steps, and their runners."""

from __future__ import annotations

from streamer.cli.options import AsJson


def steps(as_json: AsJson = False) -> None:
    """List the installed steps, the runners of each in the order of preference, and packages that they lack."""
    from dataclasses import asdict

    from pipelines.plugins.registry import default_registry
    from streamer.cli.terminal import cell, output, say_json

    registry = default_registry()
    listing = registry.listing()
    if as_json:
        say_json({"steps": [asdict(line) for line in listing], "problems": registry.problems}, indent=2)
        return
    from rich.table import Table

    table = Table("step", "runner", "priority", "available", "from", box=None, header_style="bold", pad_edge=False)
    seen: set[str] = set()
    for line in listing:
        available = cell("yes", "green") if line.available else cell(line.reason, "red")
        step = "" if line.step_type in seen else line.step_type
        seen.add(line.step_type)
        table.add_row(cell(step), cell(line.runner or "-"), cell(line.priority), available, cell(line.origin))
    output().print(table)
    for problem in registry.problems:
        output().print(cell(f"problem: {problem}", "yellow"))
