"""`streamer schema`: the JSON schema of service files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def schema(
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write it to this file, not to stdout.")] = None,
) -> None:
    """Print the JSON schema of service files, with every connector and step that is installed, for editors and linters.

    In an editor: put a first line `# yaml-language-server: $schema=service.schema.json` into the service file.
    """
    import json

    from pipelines.errors import StreamerError
    from streamer.cli.terminal import remark
    from streamer.definition.schema import service_schema

    text = json.dumps(service_schema(), indent=2, ensure_ascii=False) + "\n"
    if out is None:
        print(text, end="")
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StreamerError(f"{out} cannot be written: {error.strerror or error}") from error
    remark(f"{out}: {len(text):,} characters")
