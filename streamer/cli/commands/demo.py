"""`streamer demo`: an example, live, in under a minute."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Annotated, Literal

import typer

from streamer.cli.options import AsJson

Example = Literal["digits", "sensors", "cameras", "objects"]

SHEET = Path("digits.png")
VIDEOS = Path("cameras")


def demo(
    example: Annotated[
        Example,
        typer.Argument(
            metavar="EXAMPLE",
            help="Images on Kafka, vibration of machines on MQTT, four cameras, or objects that are counted.",
        ),
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

    cameras: people, cars and cups on four cameras (simulated by films) are found, tracked and counted, and faces are
    blurred; a page in the browser shows them live. It needs no broker. In a folder that cannot be written to it leaves
    no videos.

    objects: people and cups in a film of 12 seconds are found, and counted where they pass its middle; a page in the
    browser shows it. What was counted is compared with what there is in the film. It needs no broker.

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
    if example in ("cameras", "objects") and rate is not None:
        raise typer.BadParameter("--rate is for digits and sensors; cameras have theirs")
    if example == "objects" and seconds is not None:
        raise typer.BadParameter("--seconds is not for objects, which ends with its film")
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
            from streamer.cli.demos import sensors

            scored = sensors.run(seconds or 20.0, rate, progress, console, status.stop, stop)
            return 0 if scored is None else sensors.report(scored, as_json)
        if example == "cameras":
            from streamer.cli.demos import cameras

            clips = None if no_video else video or VIDEOS
            seen = cameras.run(seconds or 30.0, clips, video is not None, progress, console, status.update, stop)
            return 0 if seen is None else cameras.report(seen, as_json)
        if example == "objects":
            from streamer.cli.demos import objects

            counted = objects.run(progress, console, status.update, stop)
            return 0 if counted is None else objects.report(counted, as_json)
        from streamer.cli.demos import digits

        drawn = None if no_sheet else sheet or SHEET
        insist = sheet is not None
        outcome = digits.run(seconds or 15.0, rate or 2000.0, drawn, insist, progress, console, status.stop, stop)
        return 0 if outcome is None else digits.report(outcome, insist, as_json)
    return 0
