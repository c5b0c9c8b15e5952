"""The end of a demo's summary: how the service ran, and what to try next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text


def hot_path() -> str:
    """Which hot path the service had, and why, for a summary."""
    from pipelines.hotpath import choose, why_not

    path, reason = choose().report
    if path == "native":
        return "compiled"
    if why_not() is None:
        return f"plain Python, as {reason} says"
    way = "; make native compiles it" if Path("Makefile").is_file() and Path("native").is_dir() else ""
    return f"plain Python, which takes more CPU time than the compiled one{way}"


def service_file(example: str, name: str = "") -> Path:
    """The service file `NAME.yaml` of this example, from the working directory where it lies below it.

    By default it is that of the example's name.
    """
    from streamer.demo.examples import folder

    file = folder(example) / f"{name or example}.yaml"
    return file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file


def next_steps(lines: list[str], remark: str | None) -> Text:
    """Commands to try next, each with what it does, and a remark below them."""
    from rich.text import Text

    shown = [Text(), Text("Try next", "bold"), *map(Text, lines)]
    if remark is not None:
        shown.append(Text(remark, "yellow"))
    return Text("\n").join(shown)
