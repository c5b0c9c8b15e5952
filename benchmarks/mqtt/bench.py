"""`MqttBench`: runs the rows, program after program, and keeps the measurements."""

from __future__ import annotations

import statistics
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.bench import Say
from benchmarks.contestants import Contestant
from benchmarks.messages import Messages
from benchmarks.models import write_model
from benchmarks.mqtt.contestants import counted
from benchmarks.mqtt.measure import Cost, measure, player
from benchmarks.mqtt.player import Play, write_payloads
from benchmarks.mqtt.rows import MAX_WAIT, SIZE, Row
from benchmarks.process import Program, ProgramFailed
from benchmarks.programs.mqtt.job import FILTER, RESULTS, WINDOW, MqttJob
from benchmarks.rows import Content
from streamer.devbroker.mqtt import LocalMosquitto

_WARM = 0.2
"""The part of a run that is not counted: its first messages."""
_FLOATS = 32


@dataclass(slots=True)
class Found:
    """Everything that was measured, by row and program."""

    costs: dict[str, dict[str, list[Cost]]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    """Runs that came to nothing, and why."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Programs that could not run here, and why."""
    caption: str = ""
    """When and where it was measured, with which versions."""

    def ratio(self, row: str, program: str, other: str) -> float | None:
        """The median over the rounds of the other's cost by this program's in the same round: how many times cheaper
        this one is.
        """
        costs = self.costs.get(row, {})
        pairs = zip(costs.get(program, ()), costs.get(other, ()), strict=False)
        ratios = [its.microseconds / mine.microseconds for mine, its in pairs]
        return statistics.median(ratios) if ratios else None

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Found:
        """From the result of `dataclasses.asdict`, also by way of JSON."""
        costs = {
            row: {name: [Cost(**run) for run in runs] for name, runs in programs.items()}
            for row, programs in data["costs"].items()
        }
        return cls(costs, data["failed"], data["left_out"], data["caption"])


class MqttBench:
    """All runs. `share` of each row's messages is used."""

    def __init__(self, folder: Path, say: Say, programs: Sequence[Contestant], *, share: float = 1.0) -> None:
        self.found = Found()
        self._folder = folder
        self._say = say
        self._programs = programs
        self._share = share
        self._model = write_model(folder, _FLOATS)
        self._plain = folder / "plain"
        self._records = folder / "records"
        write_payloads(self._plain, [bytes(SIZE)])
        write_payloads(self._records, _payloads())

    def runs(self, row: Row, rounds: int) -> int:
        """How many runs `run` makes."""
        return len(self._of(row)) * rounds

    def run(self, row: Row, rounds: int) -> None:
        """Every program of a row in turn, to and fro, so often."""
        for turn in range(rounds):
            programs = self._of(row)
            for program in programs if turn % 2 == 0 else programs[::-1]:
                what = f"{row.name}, {program.name}, round {turn + 1} of {rounds}"
                self._say.note(what)
                try:
                    cost = self._cost(row, program)
                except ProgramFailed as error:
                    self.found.failed.append(f"{what}: {error}")
                    self._say.step(f"{what}: failed")
                    continue
                self.found.costs.setdefault(row.name, {}).setdefault(program.name, []).append(cost)
                self._say.step(
                    f"{what}: {cost.microseconds:.2f} us, {cost.rate:,.0f} msg/s, {cost.rss >> 20} MiB, "
                    f"first message after {cost.start:.2f} s"
                )

    def _of(self, row: Row) -> list[Contestant]:
        return [one for one in self._programs if row.peers or one.ours or one.name == "paho"]

    def _cost(self, row: Row, program: Contestant) -> Cost:
        last = counted(row, program, self._share)
        counts = (1, int(last * _WARM), last)
        if row.broker == "mosquitto":
            with self._fed(row) as bootstrap:
                return measure(program, self._job(row, bootstrap, counts), counts, None)
        play = Play(
            str(self._records if row.task == "service" else self._plain),
            # The service has some in hand when the last one counts.
            last if row.task == "receive" else 2 * last,
            WINDOW,
            counts,
            "published" if row.task == "publish" else "acknowledged",
            results_first=row.task == "service",
        )
        with player(play) as broker:
            return measure(program, self._job(row, f"127.0.0.1:{broker.port}"), counts, broker)

    @contextmanager
    def _fed(self, row: Row) -> Iterator[str]:
        """A mosquitto to which our sink publishes as fast as it takes messages; where it is."""
        with ExitStack() as stack:
            broker = stack.enter_context(LocalMosquitto(settings={"max_inflight_messages": str(WINDOW)}))
            bootstrap = f"{broker.host}:{broker.port}"
            feeder = next(one for one in self._programs if one.ours)
            stack.enter_context(Program(feeder, self._job(row, bootstrap, task="publish", sink="bench/line1/1")))
            yield bootstrap

    def _job(
        self, row: Row, bootstrap: str, marks: tuple[int, ...] = (), task: Any = None, sink: str = RESULTS
    ) -> MqttJob:
        name = f"bench-{row.name}-{uuid.uuid4().hex[:8]}"
        folder = self._folder / name
        folder.mkdir()
        return MqttJob(
            bootstrap=bootstrap,
            source=FILTER,
            sink=sink,
            dead=f"{name}-dead",
            group=name,
            model=str(self._model),
            floats=_FLOATS,
            batch=row.batch,
            max_wait=MAX_WAIT,
            linger=0.0,
            keep=True,
            headers=False,
            folder=str(folder),
            version=row.version,
            task=task or row.task,
            payload=SIZE,
            marks=marks,
        )


def _payloads() -> list[bytes]:
    """Messages of the service's work, all of one size, so that the played broker can count results in bulk."""
    messages = Messages(Content(_FLOATS))
    found = [messages.message(number).value for number in range(4000)]
    size = Counter(map(len, found)).most_common(1)[0][0]
    return [one for one in found if len(one) == size]
