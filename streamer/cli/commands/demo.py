"""`streamer demo`: an example, live, in under a minute."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streamer.cli.options import AsJson

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    import streamer.demo.films.play as films
    import streamer.demo.images.play as images
    import streamer.demo.machines.play as machines
    from streamer.demo.stop import Stop
    from streamer.devbroker import Broker, Substitute
    from streamer.devbroker.mqtt import MqttBroker

Example = Literal["digits", "sensors", "cameras"]
Progress = Callable[[str], None]

SHEET = Path("digits.png")
VIDEOS = Path("cameras")


def demo(
    example: Annotated[
        Example,
        typer.Argument(metavar="EXAMPLE", help="Images on Kafka, vibration of machines on MQTT, or faces on cameras."),
    ] = "digits",
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds", min=1, max=600, help="How long it lasts. Default: 15, for sensors 20, for cameras 30."
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate", min=1, max=20000, help="Records a second. Default: 2000, for sensors 187.5, as they measure."
        ),
    ] = None,
    sheet: Annotated[
        Path | None,
        typer.Option("--sheet", help="digits: the file for a sheet of the images with their predictions (digits.png)."),
    ] = None,
    no_sheet: Annotated[bool, typer.Option("--no-sheet", help="digits: draw no such sheet.")] = False,
    video: Annotated[Path | None, typer.Option("--video", help="cameras: the folder for the videos.")] = None,
    no_video: Annotated[bool, typer.Option("--no-video", help="cameras: write no videos.")] = False,
    as_json: AsJson = False,
) -> int:
    """Run an example: start a broker, send records, run a model on them, show the results. It ends by itself.

    digits: images on Kafka. The broker is the one of KAFKA_BOOTSTRAP_SERVERS, else a container, else Apache Kafka's
    jars (downloaded once, 43 MB), else a simulated one in this process; the summary says why. Without Pillow, or in a
    folder that cannot be written to, there is no sheet of the images.

    sensors: vibration of machines on MQTT; some of them develop faults, and an autoencoder finds them. The broker is
    the one of MQTT_BROKER, else mosquitto if it is installed, else amqtt in this process, else mosquitto in a
    container.

    cameras: faces on four cameras (simulated by films) are found, tracked and blurred; a page in the browser shows
    them live. It needs no broker. In a folder that cannot be written to it leaves no videos.

    Ctrl-C ends an example before its time, with the summary if there is one yet; once more ends it at once.
    """
    from streamer.cli.signals import draining
    from streamer.cli.terminal import notes
    from streamer.demo.stop import Stop, announced
    from streamer.observe.logs import configure

    if example != "digits" and (sheet is not None or no_sheet):
        raise typer.BadParameter(f"--sheet and --no-sheet are for digits; {example} draws none")
    if example != "cameras" and (video is not None or no_video):
        raise typer.BadParameter(f"--video and --no-video are for cameras; {example} has none")
    if example == "cameras" and rate is not None:
        raise typer.BadParameter("--rate is for digits and sensors; the cameras have theirs")
    configure("error", as_json=False)
    console = notes()
    stop = Stop()
    with suppress(KeyboardInterrupt), console.status("starting ...") as status, ExitStack() as signals:

        def stopping() -> None:
            status.update("stopping ...")
            console.print("stopping ... (once more to end at once)")

        signals.enter_context(announced(stop, stopping))
        signals.enter_context(draining(stop.set))

        def progress(text: str) -> None:
            if stop.is_set():
                return
            status.update(f"{text} ...")
            if not console.is_terminal:
                console.print(f"{text} ...")

        if example == "sensors":
            sensors = _sensors(seconds or 20.0, rate, progress, console, status.stop, stop)
            return 0 if sensors is None else _report_sensors(sensors, as_json)
        if example == "cameras":
            clips = None if no_video else video or VIDEOS
            seen = _cameras(seconds or 30.0, clips, video is not None, progress, console, status.update, stop)
            return 0 if seen is None else _report_cameras(seen, as_json)
        drawn = None if no_sheet else sheet or SHEET
        outcome = _digits(
            seconds or 15.0, rate or 2000.0, drawn, sheet is not None, progress, console, status.stop, stop
        )
        return 0 if outcome is None else _report_digits(outcome, sheet is not None, as_json)
    return 0


def _digits(
    seconds: float,
    rate: float,
    sheet: Path | None,
    insist: bool,
    progress: Progress,
    console: Console,
    begun: Callable[[], None],
    stop: Stop,
) -> images.DigitsOutcome | None:
    from streamer.demo.images.example import digits
    from streamer.demo.images.play import play
    from streamer.demo.images.screen import DigitsLiveScreen, DigitsPlainScreen

    def screen(broker: Broker) -> DigitsLiveScreen | DigitsPlainScreen:
        begun()
        if not console.is_terminal:
            return DigitsPlainScreen(console)
        return DigitsLiveScreen(console, digits().images, broker.description)

    return play(seconds=seconds, rate=rate, sheet=sheet, insist=insist, progress=progress, screen=screen, stop=stop)


def _sensors(
    seconds: float,
    rate: float | None,
    progress: Progress,
    console: Console,
    begun: Callable[[], None],
    stop: Stop,
) -> machines.SensorsOutcome | None:
    from streamer.demo.machines.play import play
    from streamer.demo.machines.screen import SensorsLiveScreen, SensorsPlainScreen

    def screen(broker: MqttBroker) -> SensorsLiveScreen | SensorsPlainScreen:
        begun()
        return SensorsLiveScreen(console, broker.description) if console.is_terminal else SensorsPlainScreen(console)

    return play(seconds=seconds, rate=rate, progress=progress, screen=screen, stop=stop)


def _cameras(
    seconds: float,
    video: Path | None,
    insist: bool,
    progress: Progress,
    console: Console,
    update: Callable[[str], None],
    stop: Stop,
) -> films.CamerasOutcome | None:
    from streamer.demo.films.play import play

    page = ""

    def begun(address: str) -> None:
        nonlocal page
        page = address
        console.print(f"[bold]watch {address}[/] in a browser, for {seconds:.0f} s")

    def tell(cameras: dict[str, films.CameraTally]) -> None:
        if console.is_terminal:
            now = "   ".join(f"{name} {seen.faces}" for name, seen in cameras.items())
            update(f"{page}   faces in view: {now}")

    return play(seconds=seconds, video=video, insist=insist, progress=progress, begun=begun, tell=tell, stop=stop)


def _report_cameras(outcome: films.CamerasOutcome, as_json: bool) -> int:
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

    streamer, service = program(), _service_file("cameras")
    lines = [
        f"  {service}    the service: write URLs of your cameras into it",
        f"  {streamer} new yard --source camera    a service of your own",
        f"  {streamer} demo sensors    machines on MQTT",
    ]
    output().print(_next(lines, None))
    return 0


def _report_digits(outcome: images.DigitsOutcome, insist: bool, as_json: bool) -> int:
    import json

    from pipelines.hotpath import choose
    from streamer.cli.terminal import output

    if as_json:
        print(json.dumps({**outcome.to_dict(), "hot_path": choose().report.path}))
    else:
        output().print(_digits_summary(outcome))
        output().print(_digits_next(outcome))
    if insist and outcome.no_sheet:
        return 1
    return 0 if outcome.score.answered == outcome.score.sent else 1


def _digits_summary(outcome: images.DigitsOutcome) -> RenderableType:
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
    table.add_row("hot path", _hot_path())
    table.add_row("accuracy", f"{percent(score.accuracy)} of images that the model was not trained on")
    if outcome.sheet is not None:
        table.add_row("contact sheet", str(outcome.sheet))
    elif outcome.no_sheet:
        table.add_row("contact sheet", Text(f"none: {outcome.no_sheet}", "yellow"))
    return table


def _digits_next(outcome: images.DigitsOutcome) -> Text:
    from streamer.cli.invocation import program

    streamer, service = program(), _service_file("digits")
    lines = [
        f"  {streamer} check {service}    the parts of the service",
        f"  {streamer} broker    this Kafka, until Ctrl-C; in other terminals:",
        f"  {streamer} run {service}    the service",
        f"  {streamer} tap digits.predictions    its predictions",
        f"  {streamer} demo    again, through them",
        f"  {streamer} demo sensors    machines on MQTT",
    ]
    return _next(lines, None if outcome.substitute is None else _mock(outcome.substitute))


def _mock(substitute: Substitute) -> str:
    return (
        f"This was a mock, not Kafka. {substitute.reason[:1].upper()}{substitute.reason[1:]}.\n"
        f"For the real thing, {substitute.remedy}, or set KAFKA_BOOTSTRAP_SERVERS to a broker that runs already."
    )


def _report_sensors(outcome: machines.SensorsOutcome, as_json: bool) -> int:
    import json

    from pipelines.hotpath import choose
    from streamer.cli.terminal import output

    if as_json:
        print(json.dumps({**outcome.to_dict(), "hot_path": choose().report.path}))
    else:
        output().print(_sensors_summary(outcome))
        output().print(_sensors_next(outcome))
    return 0 if outcome.lost == 0 else 1


def _sensors_summary(outcome: machines.SensorsOutcome) -> RenderableType:
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
    table.add_row("hot path", _hot_path())
    table.add_row("alerts", f"{count.alerts:,} on alerts/MACHINE, {count.false_alerts:,} of them false")
    for finding in outcome.findings:
        delay = "not found" if finding.after is None else f"found {finding.after:.1f} s after it began"
        table.add_row(f"  {finding.machine}", f"{finding.fault}, {delay}")
    return table


def _sensors_next(outcome: machines.SensorsOutcome) -> Text:
    from streamer.cli.invocation import program, python

    streamer, service = program(), _service_file("sensors")
    lines = [
        f"  {streamer} check {service}    the parts of the service",
        f"  {streamer} test {service}    its results for sample records",
        f"  {streamer} broker --mqtt    an MQTT broker, until Ctrl-C; in other terminals:",
        f"  {streamer} run {service}    the service",
        f"  {python()} -m streamer.demo.machines    the machines",
        "  mosquitto_sub -v -t 'alerts/#'    the alerts (from the package mosquitto-clients)",
    ]
    remark = "This was a development broker: for one that keeps its data, install mosquitto."
    return _next(lines, None if outcome.real else remark)


def _hot_path() -> str:
    from pipelines.hotpath import choose, why_not

    path, reason = choose().report
    if path == "native":
        return "compiled"
    if why_not() is None:
        return f"plain Python, as {reason} says"
    way = "; make native compiles it" if Path("Makefile").is_file() and Path("native").is_dir() else ""
    return f"plain Python, which takes more CPU time than the compiled one{way}"


def _service_file(name: str) -> Path:
    from streamer.demo.examples import folder

    file = folder(name) / f"{name}.yaml"
    return file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file


def _next(lines: list[str], remark: str | None) -> Text:
    from rich.text import Text

    shown = [Text(), Text("Try next", "bold"), *map(Text, lines)]
    if remark is not None:
        shown.append(Text(remark, "yellow"))
    return Text("\n").join(shown)
