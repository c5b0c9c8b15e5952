"""The cameras example of `streamer demo`: people, cars and cups on four cameras."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from streamer.cli.demos.ending import next_steps, service_file

if TYPE_CHECKING:
    from rich.console import Console

    import streamer.demo.films.play as films
    from streamer.demo.stop import Stop


def run(
    seconds: float,
    video: Path | None,
    insist: bool,
    progress: Callable[[str], None],
    console: Console,
    update: Callable[[str], None],
    stop: Stop,
) -> films.CamerasOutcome | None:
    """Run it to its end, or until `stop` is set; `None` if that was before there was anything to show."""
    from streamer.demo.films.play import play

    page = ""

    def begun(address: str) -> None:
        nonlocal page
        page = address
        console.print(f"[bold]watch {address}[/] in a browser, for {seconds:.0f} s")

    def tell(cameras: dict[str, films.CameraTally]) -> None:
        if console.is_terminal:
            now = "   ".join(f"{name} {seen.objects}" for name, seen in cameras.items())
            update(f"{page}   in view: {now}")

    return play(seconds=seconds, video=video, insist=insist, progress=progress, begun=begun, tell=tell, stop=stop)


def report(outcome: films.CamerasOutcome, as_json: bool) -> int:
    """Print its summary, as JSON if asked. Returns the exit code."""
    import json

    from rich.table import Table

    from streamer.cli.terminal import output

    if as_json:
        print(json.dumps(outcome.to_dict()))
        return 0
    table = Table(box=None, padding=(0, 2))
    for heading in ("camera", "pictures", "a second", "tracks"):
        table.add_column(heading, justify="left" if heading == "camera" else "right", header_style="dim")
    for name, seen in outcome.cameras.items():
        rate = seen.pictures / outcome.seconds if outcome.seconds else 0.0
        table.add_row(name, f"{seen.pictures:,}", f"{rate:.1f}", str(len(seen.tracks)))
    output().print(table)
    for clip in outcome.videos:
        output().print(f"  {clip}", style="dim")
    if outcome.no_videos:
        output().print(f"  no videos: {outcome.no_videos}", style="yellow", soft_wrap=True, markup=False)
    from streamer.cli.invocation import program

    streamer, service = program(), service_file("cameras")
    lines = [
        f"  {service}    the service: write URLs of your cameras into it",
        f"  {streamer} new yard --source camera    a service of your own",
        f"  {streamer} demo sensors    machines on MQTT",
    ]
    output().print(next_steps(lines, None))
    return 0
