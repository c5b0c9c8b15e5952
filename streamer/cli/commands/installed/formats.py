"""`streamer formats`: lists the forms that arrays and images can have, and their converters."""

from __future__ import annotations

from streamer.cli.options import AsJson


def formats(as_json: AsJson = False) -> None:
    """List the forms of arrays and images, the forms that each converts to directly, and packages that they lack."""
    from dataclasses import asdict

    from pipelines.values import array_conversions, image_conversions
    from streamer.cli.terminal import cell, output, say_json

    listed = [array_conversions().listing(), image_conversions().listing()]
    problems = list(dict.fromkeys([*array_conversions().problems, *image_conversions().problems]))
    if as_json:
        document = {
            "formats": [asdict(form) for forms, _ in listed for form in forms],
            "converters": [asdict(converter) for _, converters in listed for converter in converters],
            "problems": problems,
        }
        say_json(document, indent=2)
        return
    from rich.table import Table

    table = Table("of", "form", "available", "converts to", "from", box=None, header_style="bold", pad_edge=False)
    for forms, converters in listed:
        for form in forms:
            targets = [
                converter.target for converter in converters if converter.source == form.form != converter.target
            ]
            available = cell("yes", "green") if form.available else cell(form.reason, "red")
            table.add_row(cell(form.kind), cell(form.form), available, cell(", ".join(targets)), cell(form.origin))
    output().print(table)
    for problem in problems:
        output().print(cell(f"problem: {problem}", "yellow"))
