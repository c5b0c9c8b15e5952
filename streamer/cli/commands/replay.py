"""`streamer replay`: put dead letters back to the topics they came from.

The letter itself names that topic, and every producer of dead letters can write any name into it. So they go only to
topics that are allowed: by `--to`, or as topics that the service reads.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamer.cli.options import AsJson, Bootstrap, Client

if TYPE_CHECKING:
    from connectors.browser import TopicReader
    from connectors.records import Records
    from connectors.sink import Sink
    from streamer.cli.replayed import Replayed
    from streamer.cli.route import Route
    from streamer.delivery.deadletter import Original

CONFIRM = 60.0
"""Timeout in seconds of sending messages and of their confirmations."""
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
    ] = "streamer-replay",
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
    from streamer.cli.route import is_service_file, route_of, route_of_service
    from streamer.cli.signals import draining
    from streamer.cli.terminal import quiet

    quiet()
    earliest = position(since) if since is not None else None
    if isinstance(earliest, str):
        raise typer.BadParameter("--since takes a time, like 2026-01-31T12:00:00Z")
    chosen = Choice(step, error, earliest, origin)
    # Naming a topic by --topic also allows it.
    named = to or ([] if origin is None else [origin])
    if is_service_file(topic):
        route = route_of_service(Path(topic), named, client_properties(client))
    else:
        route = route_of(topic, bus(bootstrap, client), named)
    stop = threading.Event()
    with draining(stop.set), route.there.reader(route.topic, group) as reader:
        if dry_run:
            report = replayed(reader, None, chosen, route, again=again, count=count, stopped=stop.is_set)
        else:
            # Sending to a topic that does not exist would create it on many brokers.
            known = frozenset(route.back.topics())
            back = Back(route.back.sink(route.topic, "replay"), known if route.back.lists_topics else None)
            back.sink.open()
            try:
                report = replayed(reader, back, chosen, route, again=again, count=count, stopped=stop.is_set)
            finally:
                back.sink.close()
    _say(report, route.topic, as_json=as_json, dry_run=dry_run)
    return 1 if report.failed or report.empty else 0


@dataclass(frozen=True, slots=True)
class Choice:
    """The filters that choose dead letters; `None`: any."""

    step: str | None = None
    error: str | None = None
    since: int | None = None
    """Milliseconds since 1970."""
    topic: str | None = None

    def takes(self, letter: Original, died: int) -> bool:
        """Whether the filters choose this letter, which was written at `died` (milliseconds since 1970)."""
        return (
            (self.step is None or letter.step == self.step)
            and (self.error is None or self.error in f"{letter.error}: {letter.text}")
            and (self.since is None or died >= self.since)
            and (self.topic is None or letter.topic == self.topic)
        )


@dataclass(frozen=True, slots=True)
class Back:
    """The sink that dead letters are sent back with."""

    sink: Sink
    topics: frozenset[str] | None
    """The topics that exist; `None` if the bus cannot list them."""


@dataclass(slots=True)
class ReplayReport:
    """The outcomes of the dead letters that were read."""

    sent: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """Counts of letters sent back (or that would be), by topic, step and error."""
    left: int = 0
    """Letters that the filters left out."""
    before: int = 0
    """Letters that were replayed before."""
    foreign: int = 0
    """Records that are not dead letters."""
    empty: list[str] = field(default_factory=list)
    """Places of the records whose letters lack the payload, so that they cannot be sent."""
    failed: dict[str, int] = field(default_factory=dict)
    """Counts of letters that could not be sent, by reason."""
    forgetful: bool = False
    """Whether the commit has no room for all sent offsets."""


def replayed(
    reader: TopicReader,
    back: Back | None,
    choice: Choice,
    route: Route,
    *,
    again: bool = False,
    count: int | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> ReplayReport:
    """Send the dead letters of `reader`'s topic back where the route allows it; without `back` only count those that
    would be sent.

    Sent letters are committed for the reader's group, after they were confirmed.
    """
    from streamer.cli.replayed import Replayed

    report = ReplayReport()
    marks = {number: Replayed(*mark) for number, mark in reader.committed().items()}
    lows, ends = reader.range()
    ends = {number: end for number, end in ends.items() if end > lows[number]}
    starts = {number: lows[number] if again else max(marks[number].position, lows[number]) for number in ends}
    nexts = dict(starts)
    reader.begin(starts)
    while ends and not stopped() and (count is None or report.sent.total() < count):
        records = reader.poll(0.2)
        room = None if count is None else count - report.sent.total()
        done = _replay_block(records, ends, nexts, marks, back, choice, route, report, again=again, room=room)
        for number in list(ends):
            if number in reader.ended or nexts[number] >= ends[number]:
                del ends[number]
        if done and back is not None:
            _commit(reader, marks, done, report)
    return report


def _replay_block(
    records: Records,
    ends: dict[int, int],
    nexts: dict[int, int],
    marks: dict[int, Replayed],
    back: Back | None,
    choice: Choice,
    route: Route,
    report: ReplayReport,
    *,
    again: bool,
    room: int | None,
) -> set[int]:
    """Send the chosen letters of one block; returns the partitions whose marks have moved."""
    from streamer.delivery.deadletter import original

    done: dict[int, list[tuple[int, int]]] = {}
    chosen: list[tuple[int, int, int, Original]] = []
    headers = records.header_column() or [None] * len(records)
    stamps = records.timestamp_column()
    for span, number in zip(records.spans, records.partitions, strict=True):
        for row in range(span.start, span.stop):
            offset = int(records.positions[row])
            if number not in ends or offset >= ends[number] or (room is not None and len(chosen) >= room):
                break
            # Offsets in between have no records (transaction markers, compacted records), so they are done with.
            done.setdefault(number, []).append((nexts[number], offset))
            nexts[number] = offset + 1
            letter = original(headers[row])
            if letter is None:
                report.foreign += 1
                done[number].append((offset, offset + 1))
            elif offset in marks[number] and not again:
                report.before += 1
            elif letter.left_out and choice.takes(letter, int(stamps[row])):
                report.empty.append(f"{letter.topic}[{letter.partition}]@{letter.offset}")
                done[number].append((offset, offset + 1))
            elif choice.takes(letter, int(stamps[row])):
                chosen.append((row, number, offset, letter))
            else:
                report.left += 1
    refused = _send(records, [(row, letter) for row, _, _, letter in chosen], back, route)
    for at, (_, number, offset, letter) in enumerate(chosen):
        if at in refused:
            reason = refused[at]
            report.failed[reason] = report.failed.get(reason, 0) + 1
            continue
        report.sent[letter.topic, letter.step, letter.error] += 1
        done[number].append((offset, offset + 1))
    for number, ranges in done.items():
        marks[number].add((start, stop) for start, stop in ranges if start < stop)
    return set(done)


def _send(records: Records, chosen: list[tuple[int, Original]], back: Back | None, route: Route) -> dict[int, str]:
    """Send these rows to their topics and wait for confirmation. Returns by index why some of them failed."""
    import numpy as np

    from connectors.records import Messages

    if back is None and route.to is None:
        return {}
    refusals = ((at, route.refusal(letter.topic)) for at, (_, letter) in enumerate(chosen))
    failed = {at: reason for at, reason in refusals if reason is not None}
    if back is None:
        return failed
    gone: set[int] = set()
    if back.topics is not None:
        gone = {at for at, (_, letter) in enumerate(chosen) if at not in failed and letter.topic not in back.topics}
    failed |= {at: f'there is no topic "{chosen[at][1].topic}"' for at in gone}
    there = [at for at in range(len(chosen)) if at not in failed]
    if not there:
        return failed
    rows = [chosen[at][0] for at in there]
    messages = Messages(
        np.array(there, np.int64),
        [records.values[row] for row in rows],
        None if records.keys is None else [records.keys[row] for row in rows],
        [chosen[at][1].headers or None for at in there],
        topics=[chosen[at][1].topic for at in there],
        extras=[chosen[at][1].record or None for at in there],
    )
    deadline = time.monotonic() + CONFIRM
    failed |= {there[index]: str(error) for index, error in back.sink.send(messages, deadline).items()}
    return failed | {at: str(error) for at, error in back.sink.barrier(deadline).items()}


def _commit(reader: TopicReader, marks: dict[int, Replayed], done: set[int], report: ReplayReport) -> None:
    from connectors.browser import Mark

    commits = {}
    for number in sorted(done):
        text, complete = marks[number].metadata()
        report.forgetful = report.forgetful or not complete
        commits[number] = Mark(marks[number].position, text)
    reader.commit(commits)


def _say(report: ReplayReport, topic: str, *, as_json: bool, dry_run: bool) -> None:
    from streamer.cli.terminal import complain, say, say_json, warn

    rows = [
        {"topic": origin, "step": step, "error": error, "count": number}
        for (origin, step, error), number in report.sent.most_common()
    ]
    if as_json:
        counts: dict[str, Any] = {"sent": report.sent.total(), "left": report.left, "before": report.before}
        counts |= {"foreign": report.foreign, "empty": report.empty, "failed": report.failed}
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
