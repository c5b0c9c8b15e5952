"""Dead letters are sent back to the topics that their records came from, and it is noted which were.

The letter itself names that topic, and every producer of dead letters can write any name into it. So they go only to
topics that the route allows.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamer.letters.replayed import Replayed
from streamer.letters.stored import fingerprint

if TYPE_CHECKING:
    from connectors.browser import TopicReader
    from connectors.records import Records
    from streamer.delivery.deadletter import Original
    from streamer.letters.route import Back, Route

Place = tuple[int, int]
"""The partition and the offset of a dead letter."""
CONFIRM = 60.0
"""Timeout in seconds of sending messages and of their confirmations."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The filters that choose dead letters; `None`: any."""

    step: str | None = None
    error: str | None = None
    since: int | None = None
    """Milliseconds since 1970."""
    topic: str | None = None
    fingerprint: str | None = None
    """That of the one letter that is meant, as `fingerprint` gives it."""

    def takes(self, letter: Original, died: int) -> bool:
        """Whether the filters choose this letter, which was written at `died` (milliseconds since 1970)."""
        return (
            (self.step is None or letter.step == self.step)
            and (self.error is None or self.error in f"{letter.error}: {letter.text}")
            and (self.since is None or died >= self.since)
            and (self.topic is None or letter.topic == self.topic)
            and (self.fingerprint is None or self.fingerprint == fingerprint(letter, died))
        )


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
    windows: list[str] = field(default_factory=list)
    """Places of the last records of letters that have a window and no record, so that they cannot be sent."""
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
    place: Place | None = None,
    patience: float = CONFIRM,
) -> ReplayReport:
    """Send the dead letters of `reader`'s topic back where the route allows it.

    Without `back` those that would be sent are counted only. Sent letters are committed for the reader's group, after
    they were confirmed, for which they have `patience` seconds. `place` chooses a single one.
    """
    report = ReplayReport()
    marks = {number: Replayed(*mark) for number, mark in reader.committed().items()}
    lows, ends = reader.range()
    if place is not None:
        lows, ends = _only(place, lows, ends)
    ends = {number: end for number, end in ends.items() if end > lows[number]}
    everything = again or place is not None
    starts = {number: lows[number] if everything else max(marks[number].position, lows[number]) for number in ends}
    nexts = dict(starts)
    reader.begin(starts)
    while ends and not stopped() and (count is None or report.sent.total() < count):
        records = reader.poll(0.2)
        room = None if count is None else count - report.sent.total()
        done = _replay_block(
            records, ends, nexts, marks, back, choice, route, report, again=again, room=room, patience=patience
        )
        for number in list(ends):
            if number in reader.ended or nexts[number] >= ends[number]:
                del ends[number]
        if done and back is not None:
            _commit(reader, marks, done, report)
    return report


def _only(place: Place, lows: dict[int, int], ends: dict[int, int]) -> tuple[dict[int, int], dict[int, int]]:
    """The range of this place alone, within those of its topic; empty if the topic has no such place now."""
    number, offset = place
    if not lows.get(number, 0) <= offset < ends.get(number, 0):
        return {}, {}
    return {number: offset}, {number: offset + 1}


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
    patience: float,
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
            if number not in ends or (room is not None and len(chosen) >= room):
                break
            if offset >= ends[number]:
                nexts[number] = ends[number]
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
                report.empty.append(letter.place)
                done[number].append((offset, offset + 1))
            elif letter.is_window and choice.takes(letter, int(stamps[row])):
                report.windows.append(letter.place)
                done[number].append((offset, offset + 1))
            elif choice.takes(letter, int(stamps[row])):
                chosen.append((row, number, offset, letter))
            else:
                report.left += 1
    refused = _send(records, [(row, letter) for row, _, _, letter in chosen], back, route, patience)
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


def _send(
    records: Records, chosen: list[tuple[int, Original]], back: Back | None, route: Route, patience: float
) -> dict[int, str]:
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
    deadline = time.monotonic() + patience
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
