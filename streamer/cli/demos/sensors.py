"""The sensors example of `streamer demo`: vibration of machines on MQTT."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from streamer.cli.demos.ending import hot_path, next_steps, service_file

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    import streamer.demo.machines.play as machines
    from streamer.demo.stop import Stop
    from streamer.devbroker.mqtt import MqttBroker


def run(
    seconds: float,
    rate: float | None,
    progress: Callable[[str], None],
    console: Console,
    begun: Callable[[], None],
    stop: Stop,
) -> machines.SensorsOutcome | None:
    """Run it to its end, or until `stop` is set; `None` if that was before there was anything to show."""
    from streamer.demo.machines.play import play
    from streamer.demo.machines.screen import SensorsLiveScreen, SensorsPlainScreen

    def screen(broker: MqttBroker) -> SensorsLiveScreen | SensorsPlainScreen:
        begun()
        return SensorsLiveScreen(console, broker.description) if console.is_terminal else SensorsPlainScreen(console)

    return play(seconds=seconds, rate=rate, progress=progress, screen=screen, stop=stop)


def report(outcome: machines.SensorsOutcome, as_json: bool) -> int:
    """Print its summary, as JSON if asked. Returns the exit code."""
    import json

    from pipelines.hotpath import choose
    from streamer.cli.terminal import output

    if as_json:
        print(json.dumps({**outcome.to_dict(), "hot_path": choose().report.path}))
    else:
        output().print(_summary(outcome))
        output().print(_suggested(outcome))
    return 0 if outcome.lost == 0 else 1


def _summary(outcome: machines.SensorsOutcome) -> RenderableType:
    from rich.table import Table

    from streamer.demo.drawing import milliseconds

    count = outcome.count
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_row("broker", outcome.broker)
    table.add_row("windows sent", f"{count.sent:,} of {outcome.machines} machines on factory/LINE/MACHINE/vibration")
    table.add_row("scores", f"{count.scored:,} on factory/LINE/MACHINE/score")
    table.add_row("lost", f"{outcome.lost:,}, dead letters {outcome.dead:,} on dead/sensors")
    table.add_row("latency", f"p50 {milliseconds(count.p50)}, p99 {milliseconds(count.p99)}")
    table.add_row("batches", f"{outcome.batch_mean:.1f} windows on average")
    table.add_row("hot path", hot_path())
    table.add_row("alerts", f"{count.alerts:,} on alerts/MACHINE, {count.false_alerts:,} of them false")
    for finding in outcome.findings:
        delay = "not found" if finding.after is None else f"found {finding.after:.1f} s after it began"
        table.add_row(f"  {finding.machine}", f"{finding.fault}, {delay}")
    return table


def _suggested(outcome: machines.SensorsOutcome) -> Text:
    from streamer.cli.invocation import program, python

    streamer, service = program(), service_file("sensors")
    alerts = service_file("sensors", "alerts")
    lines = [
        f"  {streamer} check {service}    the parts of the service",
        f"  {streamer} test {service}    its results for sample records",
        f"  {streamer} broker --mqtt    an MQTT broker, until Ctrl-C; in other terminals:",
        f"  {streamer} run {service} {alerts}    the services, scores and alerts",
        f"  {python()} -m streamer.demo.machines    the machines",
        "  mosquitto_sub -v -t 'alerts/#'    the alerts (from the package mosquitto-clients)",
    ]
    remark = "This was a development broker: for one that keeps its data, install mosquitto."
    return next_steps(lines, None if outcome.real else remark)
