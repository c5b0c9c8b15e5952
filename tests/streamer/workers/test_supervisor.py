"""The parent's decisions, on a simulated clock and with processes that are none."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.records import Lane
from streamer.workers.filing import PagesFile
from streamer.workers.notes import Span
from streamer.workers.pages import WorkerPage
from streamer.workers.supervisor import Supervisor


class Launched:
    """A process that does what a test says."""

    pid = 0

    def __init__(self, page: WorkerPage) -> None:
        self.page = page
        self.slot = page.slot()
        self.code: int | None = None
        self.signals: list[int] = []

    def poll(self) -> int | None:
        return self.code

    def kill(self) -> None:
        self.signals.append(signal.SIGKILL)
        self.code = -signal.SIGKILL

    def send_signal(self, sig: int, /) -> None:
        self.signals.append(sig)


class World:
    """A clock, and the processes that were launched."""

    def __init__(self, folder: Path, count: int = 2) -> None:
        self.now = 1000.0
        self.launched: list[tuple[int, Launched]] = []
        self.said: list[tuple[str, dict[str, object]]] = []
        self.file = PagesFile(folder / "pages", count)
        self.pages: list[WorkerPage] = []
        self.supervisor = Supervisor(
            self.file, count, self._launch, {"digits": 60.0, "slow": 600.0}, lambda: self.now, self
        )

    def info(self, event: str, **values: object) -> None:
        self.said.append((event, values))

    warning = error = info

    def _launch(self, worker: int) -> Launched:
        page = WorkerPage(self.file.path, worker)
        self.pages.append(page)
        self.launched.append((worker, Launched(page)))
        return self.launched[-1][1]

    def process(self, worker: int) -> Launched:
        return next(process for number, process in reversed(self.launched) if number == worker)

    def starts(self, worker: int) -> int:
        return sum(number == worker for number, _ in self.launched)

    def rounds(self, seconds: float) -> None:
        for _ in range(max(1, round(seconds * 10))):
            self.supervisor.look()
            self.now += 0.1

    def runs(self, worker: int, first: int, last: int | None = None, service: str = "digits") -> None:
        process = self.process(worker)
        span = Span(service, "kafka", "images/0", first, first if last is None else last)
        process.page.note(process.slot, [span], self.now)

    def dies(self, worker: int, number: int, after: float = 1.0) -> None:
        """It lives on for `after` seconds, dies, and is started again."""
        self.rounds(after)
        self.process(worker).code = -number
        self.rounds(0.1)
        started = self.starts(worker)
        for _ in range(400):
            if self.starts(worker) > started or self.supervisor.gave_up:
                return
            self.rounds(0.1)

    def entries(self) -> list[tuple[int, int, bool]]:
        board = self.pages[-1].board()
        return [(e.first, e.last, e.convicted) for e in board.places.get(("digits", "kafka", "images/0"), ())]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    for page in world.pages:
        page.close()
    world.file.close()


def test_all_workers_are_started_and_stopped_together(world: World) -> None:
    world.rounds(1)
    assert [worker for worker, _ in world.launched] == [0, 1]
    world.supervisor.stop()
    world.supervisor.stop()
    assert all(process.signals == [signal.SIGTERM] for _, process in world.launched)
    for _, process in world.launched:
        process.code = 0
    world.rounds(0.1)
    assert world.supervisor.ended
    assert world.supervisor.exit_code == 0


@pytest.mark.parametrize("code", [0, 1, 2])
def test_a_worker_that_ends_by_itself_decides_for_all(world: World, code: int) -> None:
    world.rounds(1)
    world.process(0).code = code
    world.rounds(0.1)
    assert world.process(1).signals == [signal.SIGTERM]
    world.process(1).code = 0
    world.rounds(0.1)
    assert world.supervisor.ended
    assert world.supervisor.exit_code == code


def test_after_a_second_signal_all_end_at_once(world: World) -> None:
    world.rounds(1)
    world.supervisor.stop()
    world.supervisor.kill()
    world.rounds(0.1)
    assert world.supervisor.ended
    assert world.supervisor.exit_code == 130


def test_a_worker_that_dies_is_started_again_later_each_time(world: World) -> None:
    world.rounds(0.1)
    gaps = []
    for position in range(8):
        world.runs(0, position)
        died = world.now
        world.dies(0, signal.SIGKILL, after=0.1)
        gaps.append(round(world.now - died - 0.1))
    assert gaps[2:] == [2, 4, 8, 16, 30, 30]
    assert world.starts(1) == 1
    died = world.now
    world.dies(0, signal.SIGKILL, after=61)
    assert world.now - died - 61 < 1


def test_a_crash_isolates_and_convicts_the_record(world: World) -> None:
    world.rounds(0.1)
    world.runs(0, 100, 199)
    world.dies(0, signal.SIGSEGV)
    assert world.entries() == [(100, 199, False)]
    # The partition may have moved: it is the record that counts, not the worker.
    world.runs(1, 150)
    world.dies(1, signal.SIGSEGV)
    assert world.entries() == [(100, 149, False), (150, 150, True), (151, 199, False)]
    assert world.supervisor.poison == {"digits": 1}
    assert world.supervisor.restarts == {(0, "SIGSEGV"): 1, (1, "SIGSEGV"): 1}


def test_a_batch_that_hangs_is_killed_after_the_limit_of_its_service(world: World) -> None:
    world.rounds(0.1)
    world.runs(0, 7)
    world.runs(1, 8, service="slow")
    world.rounds(59)
    assert world.process(0).signals == []
    world.rounds(2)
    assert world.launched[0][1].signals == [signal.SIGKILL]
    assert world.process(1).signals == []
    assert world.entries() == [(7, 7, True)]
    assert world.supervisor.restarts == {(0, "hung"): 1}


def test_batches_that_follow_each_other_do_not_hang(world: World) -> None:
    world.rounds(0.1)
    for position in range(100):
        world.runs(0, position)
        world.rounds(1)
    assert world.starts(0) == 1


def test_acknowledged_positions_leave_the_board(world: World) -> None:
    world.rounds(0.1)
    world.runs(0, 100, 199)
    world.dies(0, signal.SIGSEGV)
    page = world.process(1).page
    page.board()
    page.acknowledged("digits", {Lane("kafka", "images/0", 0): 150})
    world.rounds(0.2)
    assert world.entries() == [(150, 199, False)]
    page.board()
    page.acknowledged("digits", {Lane("kafka", "images/0", 1): 200})
    world.rounds(0.2)
    assert world.entries() == []


def test_ten_deaths_without_a_record_end_the_service(world: World) -> None:
    world.rounds(0.1)
    for _ in range(9):
        world.dies(0, signal.SIGSEGV)
    assert world.supervisor.gave_up is None
    world.dies(1, signal.SIGBUS)
    assert world.supervisor.gave_up is not None
    assert "signal 7" in world.supervisor.gave_up
    assert world.process(0).signals == [signal.SIGTERM]
    world.process(0).code = 0
    world.rounds(0.1)
    assert world.supervisor.ended
    assert world.supervisor.exit_code == 1


def test_kills_from_outside_of_workers_that_do_their_work_end_nothing(world: World) -> None:
    world.rounds(0.1)
    for position in range(30):
        process = world.process(position % 2)
        world.runs(position % 2, position)
        process.page.clear(process.slot)
        world.dies(position % 2, signal.SIGKILL)
    assert world.supervisor.gave_up is None
    assert not world.supervisor.poison


def test_kills_from_outside_while_a_worker_begins_again_end_nothing(world: World) -> None:
    world.rounds(0.1)
    world.runs(0, 1)
    world.process(0).page.clear(world.process(0).slot)
    for _ in range(12):
        world.dies(0, signal.SIGKILL)
    assert world.supervisor.gave_up is None


def test_ten_kills_of_workers_that_never_run_anything_end_the_service(world: World) -> None:
    world.rounds(0.1)
    for _ in range(10):
        world.dies(0, signal.SIGKILL)
    assert world.supervisor.gave_up is not None


def test_a_worker_that_dies_while_it_stops_is_not_started_again(world: World) -> None:
    world.rounds(0.1)
    world.supervisor.stop()
    world.process(0).code = -signal.SIGSEGV
    world.process(1).code = 0
    world.rounds(60)
    assert world.starts(0) == 1
    assert world.supervisor.ended
    assert world.supervisor.exit_code == 1


def test_stopping_while_a_worker_waits_for_its_restart_ends_it(world: World) -> None:
    world.rounds(0.1)
    world.process(0).code = -signal.SIGSEGV
    world.rounds(0.1)
    world.supervisor.stop()
    world.process(1).code = 0
    world.rounds(1)
    assert world.supervisor.ended
    assert world.starts(0) == 1
