"""`streamer demo`: the digits service from topic to topic, in under a minute."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from streamer.cli.options import AsJson

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from streamer.demo.play import Outcome


def demo(
    seconds: Annotated[float, typer.Option("--seconds", min=1, max=600, help="How long images are sent.")] = 15.0,
    rate: Annotated[float, typer.Option("--rate", min=1, max=20000, help="Images a second.")] = 2000.0,
    sheet: Annotated[Path, typer.Option("--sheet", help="Where the contact sheet goes.")] = Path("digits.png"),
    no_sheet: Annotated[bool, typer.Option("--no-sheet", help="Draw no contact sheet.")] = False,
    as_json: AsJson = False,
) -> int:
    """Run the digits example: a broker, images on a topic, a model, predictions on another, watched live.

    The broker is the one of KAFKA_BOOTSTRAP_SERVERS, else a container, else Apache Kafka's jars (downloaded once,
    43 MB), else a mock in this process. It ends by itself.
    """
    import json
    import threading

    from streamer.cli.signals import draining
    from streamer.cli.terminal import notes, output
    from streamer.demo.example import digits, folder
    from streamer.demo.play import play
    from streamer.demo.screen import LiveScreen, PlainScreen
    from streamer.observe.logs import configure

    configure("error", as_json=False)
    console = notes()
    stop = threading.Event()
    with draining(stop.set), console.status("starting ...") as status:

        def progress(text: str) -> None:
            status.update(f"{text} ...")
            if not console.is_terminal:
                console.print(f"{text} ...")

        def screen(broker: object) -> LiveScreen | PlainScreen:
            status.stop()
            if not console.is_terminal:
                return PlainScreen(console)
            return LiveScreen(console, digits().images, getattr(broker, "description", ""))

        outcome = play(
            seconds=seconds,
            rate=rate,
            sheet=None if no_sheet else sheet,
            progress=progress,
            screen=screen,
            stop=stop,
        )
    if outcome is None:
        return 0
    if as_json:
        print(json.dumps(outcome.to_dict()))
    else:
        output().print(_summed_up(outcome))
        output().print(_what_next(outcome, folder()))
    return 0 if outcome.score.answered == outcome.score.sent else 1


def _summed_up(outcome: Outcome) -> RenderableType:
    from rich.table import Table

    from streamer.demo.screen import milliseconds, percent

    score = outcome.score
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_row("broker", outcome.broker)
    table.add_row("images sent", f"{score.sent:,} on {outcome.topics[0]}")
    table.add_row("predictions", f"{score.answered:,} on {outcome.topics[1]}, {score.rate:,.0f} a second")
    table.add_row("lost", f"{score.sent - score.answered:,}, dead letters {outcome.dead:,} on {outcome.topics[2]}")
    cold = f", after {outcome.warm_up:.0f} s of warming up" if outcome.warm_up else ""
    late = f"p50 {milliseconds(score.p50)}, p95 {milliseconds(score.p95)}, p99 {milliseconds(score.p99)}{cold}"
    table.add_row("latency", late)
    table.add_row("batches", f"{outcome.batch_mean:.1f} images on average, median {outcome.batch_median:.0f}")
    table.add_row("accuracy", f"{percent(score.accuracy)} of images that the model was not trained on")
    if outcome.sheet is not None:
        table.add_row("contact sheet", str(outcome.sheet))
    return table


def _what_next(outcome: Outcome, example: Path) -> Text:
    from rich.text import Text

    try:
        service = (example / "digits.yaml").relative_to(Path.cwd())
    except ValueError:
        service = example / "digits.yaml"
    lines = [
        ("", ""),
        ("Try next", "bold"),
        (f"  streamer check {service}    what the service is made of", ""),
        ("  streamer broker    this Kafka, until Ctrl-C; in other terminals:", ""),
        (f"  streamer run {service}    the service", ""),
        ("  streamer tap digits.predictions    what it says", ""),
        ("  streamer demo    again, through them", ""),
    ]
    if not outcome.real:
        lines.append(
            ("This was a mock, not Kafka: for the real thing, pip install 'streamer-inference[demo]'.", "yellow")
        )
    return Text("\n").join(Text(text, style) for text, style in lines)
