"""`streamer replay`: put dead letters back to the topics they came from.

The letter itself names that topic, and every producer of dead letters can write any name into it. So they go only to
topics that are allowed: by `--to`, or as topics that the service reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamer.cli.options import AsJson, Bootstrap, Client
from streamer.letters.replayed import GROUP

if TYPE_CHECKING:
    from streamer.letters.replaying import ReplayReport

EMPTY_SHOWN = 5
"""The most records without a payload in their letter whose places are printed."""


def replay(
    topic: Annotated[
        str,
        typer.Argument(
            metavar="TOPIC|FILE",
            help="The topic of the dead letters, or a service file, whose dead letters are in a topic or a file.",
        ),
    ],
    to: Annotated[
        list[str] | None,
        typer.Option(
            "--to",
            help="A topic that may be sent to, or a regular expression that begins with ^; may be repeated. "
            "By default those that the service of FILE reads.",
        ),
    ] = None,
    step: Annotated[str | None, typer.Option("--step", help="Only dead letters that failed in this step.")] = None,
    error: Annotated[
        str | None, typer.Option("--error", help="Only dead letters whose error (class or text) contains this.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only dead letters that failed at this time or later.")
    ] = None,
    origin: Annotated[
        str | None,
        typer.Option("--topic", help="Only dead letters whose records were read from this topic; it may be sent to."),
    ] = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="The most dead letters that are sent.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the dead letters that would be sent; send none.")
    ] = False,
    again: Annotated[bool, typer.Option("--again", help="Also dead letters that were replayed before.")] = False,
    group: Annotated[
        str, typer.Option("--group", help="The consumer group under which the brokers keep the replayed offsets.")
    ] = GROUP,
    bootstrap: Bootstrap = None,
    client: Client = None,
    as_json: AsJson = False,
) -> int:
    """Send dead letters back to the topics that their records were read from.

    Payload, key and headers are unchanged; over MQTT also response topic, correlation data and content type, so that
    answers reach the clients that asked.

    The topic is read from a header of the dead letter, which could be forged. So dead letters are sent only to topics
    that --to, --topic or the service file names. With a service file, its brokers and login are used.

    The command ends with the last dead letter that there is now. Dead letters that were replayed are not replayed
    again; those that a filter leaves out stay for later. A dead letter that was written without its payload cannot be
    replayed: the command lists where its record was read, and goes on.
    """
    import threading

    from streamer.cli.options import bus, client_properties, position
    from streamer.cli.route import is_service_file, route_of_file
    from streamer.cli.signals import draining
    from streamer.cli.terminal import quiet
    from streamer.letters.replaying import Choice, replayed
    from streamer.letters.route import route_of

    quiet()
    earliest = position(since) if since is not None else None
    if isinstance(earliest, str):
        raise typer.BadParameter("--since takes a time, like 2026-01-31T12:00:00Z")
    chosen = Choice(step, error, earliest, origin)
    # Naming a topic by --topic also allows it.
    named = to or ([] if origin is None else [origin])
    if is_service_file(topic):
        route = route_of_file(Path(topic), named, client_properties(client))
    else:
        route = route_of(topic, bus(bootstrap, client), named)
    stop = threading.Event()
    with draining(stop.set), route.there.reader(route.topic, group) as reader:
        if dry_run:
            report = replayed(reader, None, chosen, route, again=again, count=count, stopped=stop.is_set)
        else:
            with route.sending() as back:
                report = replayed(reader, back, chosen, route, again=again, count=count, stopped=stop.is_set)
    _say(report, route.topic, as_json=as_json, dry_run=dry_run)
    return 1 if report.failed or report.empty or report.windows else 0


def _say(report: ReplayReport, topic: str, *, as_json: bool, dry_run: bool) -> None:
    from streamer.cli.terminal import complain, say, say_json, warn

    rows = [
        {"topic": origin, "step": step, "error": error, "count": number}
        for (origin, step, error), number in report.sent.most_common()
    ]
    if as_json:
        counts: dict[str, Any] = {"sent": report.sent.total(), "left": report.left, "before": report.before}
        counts |= {"foreign": report.foreign, "empty": report.empty, "windows": report.windows, "failed": report.failed}
        counts |= {"dry_run": dry_run, "letters": rows}
        say_json(counts)
    else:
        _table(rows)
        verb = "would be sent back" if dry_run else "sent back"
        notes = [f"{report.sent.total():,} {verb} from {topic}"]
        notes += [f"{report.left:,} left by the filters"] if report.left else []
        notes += [f"{report.before:,} replayed before (--again)"] if report.before else []
        notes += [f"{report.foreign:,} records are not dead letters"] if report.foreign else []
        say(", ".join(notes))
    if report.forgetful:
        warn("too many gaps to remember; a later replay will repeat some")
    if report.empty:
        places = ", ".join(report.empty[:EMPTY_SHOWN]) + (", ..." if len(report.empty) > EMPTY_SHOWN else "")
        complain(
            f"{len(report.empty):,} have no payload to send; the records are, as long as their topic keeps them, at "
            f"{places}"
        )
    if report.windows:
        places = ", ".join(report.windows[:EMPTY_SHOWN]) + (", ..." if len(report.windows) > EMPTY_SHOWN else "")
        complain(
            f"{len(report.windows):,} have the values of a window, which no topic of records takes; the windows' last "
            f"records are at {places}"
        )
    for reason, number in list(report.failed.items())[:2]:
        complain(f"{number:,} not sent: {reason}")


def _table(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from streamer.cli.terminal import cell, output

    if not rows:
        return
    table = Table("topic", "step", "error", "letters", box=None, header_style="bold", pad_edge=False)
    for row in rows:
        table.add_row(*(cell(row[key]) for key in ("topic", "step", "error", "count")))
    output().print(table)
