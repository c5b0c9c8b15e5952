"""`streamer plugins`: lists the plug-ins of installed distributions, and their errors."""

from __future__ import annotations

from streamer.cli.options import AsJson


def plugins(as_json: AsJson = False) -> int:
    """List the plug-ins of other installed packages: their entry points, and what is wrong with them.

    The exit code is 1 if a plug-in cannot be used.
    """
    import warnings
    from dataclasses import asdict

    from streamer.cli.terminal import cell, output, say_json
    from streamer.definition.plugins import listed, problems

    entries = listed()
    with warnings.catch_warnings():
        # The problems contain what plug-ins warn of.
        warnings.simplefilter("ignore", RuntimeWarning)
        wrong = problems()
    if as_json:
        say_json({"plugins": [asdict(entry) for entry in entries], "problems": wrong}, indent=2)
        return 1 if wrong else 0
    from rich.table import Table

    if not entries:
        output().print("no plug-ins are installed")
    else:
        table = Table("group", "name", "is", "from", box=None, header_style="bold", pad_edge=False)
        for entry in entries:
            table.add_row(*map(cell, (entry.group, entry.name, entry.target, f"{entry.distribution} {entry.version}")))
        output().print(table)
    for problem in wrong:
        output().print(cell(f"problem: {problem}", "yellow"))
    return 1 if wrong else 0
