"""The digits example of `streamer demo`: images on Kafka."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from streamer.cli.demos.ending import hot_path, next_steps, service_file

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    import streamer.demo.images.play as images
    from streamer.demo.stop import Stop
    from streamer.devbroker import Broker, Substitute


def run(
    seconds: float,
    rate: float,
    sheet: Path | None,
    insist: bool,
    progress: Callable[[str], None],
    console: Console,
    begun: Callable[[], None],
    stop: Stop,
) -> images.DigitsOutcome | None:
    """Run it to its end, or until `stop` is set; `None` if that was before there was anything to show."""
    from streamer.demo.images.example import digits
    from streamer.demo.images.play import play
    from streamer.demo.images.screen import DigitsLiveScreen, DigitsPlainScreen

    def screen(broker: Broker) -> DigitsLiveScreen | DigitsPlainScreen:
        begun()
        if not console.is_terminal:
            return DigitsPlainScreen(console)
        return DigitsLiveScreen(console, digits().images, broker.description)

    return play(seconds=seconds, rate=rate, sheet=sheet, insist=insist, progress=progress, screen=screen, stop=stop)


def report(outcome: images.DigitsOutcome, insist: bool, as_json: bool) -> int:
    """Print its summary, as JSON if asked. Returns the exit code."""
    import json

    from pipelines.hotpath import choose
    from streamer.cli.terminal import output

    if as_json:
        print(json.dumps({**outcome.to_dict(), "hot_path": choose().report.path}))
    else:
        output().print(_summary(outcome))
        output().print(_suggested(outcome))
    if insist and outcome.no_sheet:
        return 1
    return 0 if outcome.score.answered == outcome.score.sent else 1


def _summary(outcome: images.DigitsOutcome) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    from streamer.demo.drawing import milliseconds, percent

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
    table.add_row("hot path", hot_path())
    table.add_row("accuracy", f"{percent(score.accuracy)} of images that the model was not trained on")
    if outcome.sheet is not None:
        table.add_row("contact sheet", str(outcome.sheet))
    elif outcome.no_sheet:
        table.add_row("contact sheet", Text(f"none: {outcome.no_sheet}", "yellow"))
    return table


def _suggested(outcome: images.DigitsOutcome) -> Text:
    from streamer.cli.invocation import program

    streamer, service = program(), service_file("digits")
    lines = [
        f"  {streamer} check {service}    the parts of the service",
        f"  {streamer} broker    this Kafka, until Ctrl-C; in other terminals:",
        f"  {streamer} run {service}    the service",
        f"  {streamer} tap digits.predictions    its predictions",
        f"  {streamer} demo    again, through them",
        f"  {streamer} demo sensors    machines on MQTT",
    ]
    return next_steps(lines, None if outcome.substitute is None else _mock(outcome.substitute))


def _mock(substitute: Substitute) -> str:
    return (
        f"This was a mock, not Kafka. {substitute.reason[:1].upper()}{substitute.reason[1:]}.\n"
        f"For the real thing, {substitute.remedy}, or set KAFKA_BOOTSTRAP_SERVERS to a broker that runs already."
    )
