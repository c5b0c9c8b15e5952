"""`streamer steps`: which steps there are, and what runs them here."""

from __future__ import annotations

from streamer.cli.options import AsJson


def steps(as_json: AsJson = False) -> None:
    """List the installed steps, the runners of each in the order of preference, and what is missing for them."""
    from dataclasses import asdict

    from pipelines.registry import default_registry

    registry = default_registry()
    listing = registry.listing()
    if as_json:
        import json

        print(json.dumps({"steps": [asdict(line) for line in listing], "problems": registry.problems}, indent=2))
        return
    from rich.table import Table
    from rich.text import Text

    from streamer.cli.terminal import output

    table = Table("step", "runner", "priority", "available", "from", box=None, header_style="bold", pad_edge=False)
    seen: set[str] = set()
    for line in listing:
        available = Text("yes", "green") if line.available else Text(line.reason, "red")
        step = "" if line.step_type in seen else line.step_type
        seen.add(line.step_type)
        table.add_row(Text(step), Text(line.runner or "-"), Text(str(line.priority)), available, Text(line.origin))
    output().print(table)
    for problem in registry.problems:
        output().print(Text(f"problem: {problem}", "yellow"))
