"""A service whose table is replaced, broken and deleted while records come from a file."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from pipelines.runners.tables import livetable
from streamer.agent.agent import Agent
from streamer.definition.loading import loads

SERVICE = """
name: lines
source: {type: file, path: in.jsonl, format: jsonl, follow: true}
pipeline: [{"@type": LOOKUP, by: machine, path: machines.csv, take: line}]
sink: {type: file, path: out.jsonl, format: jsonl}
dead_letter: {type: file, path: dead.jsonl, format: jsonl}
limits: {parallel: 2}
batch: {max_records: 8, max_wait: 2ms}
errors: {stop_ratio: 1}
"""


class Running:
    """The service in a folder; records are asked one by one."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked = 0

    def ask(self, machine: str) -> str | None:
        """The line that a record with this machine gets; `None` if it is a dead letter."""
        self.asked += 1
        with (self.folder / "in.jsonl").open("a") as file:
            file.write(json.dumps({"machine": machine, "n": self.asked}) + "\n")
        until(lambda: self.asked in {record["n"] for record in self.results} or len(self.dead) > self._dead)
        self._dead = len(self.dead)
        return next((record["line"] for record in self.results if record["n"] == self.asked), None)

    _dead = 0

    @property
    def results(self) -> list[dict[str, Any]]:
        return self._lines("out.jsonl")

    @property
    def dead(self) -> list[dict[str, Any]]:
        return self._lines("dead.jsonl")

    def _lines(self, name: str) -> list[dict[str, Any]]:
        path = self.folder / name
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr(livetable, "LOOK", 0.02)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").touch()
    (tmp_path / "machines.csv").write_text("machine,line\nm1,north\n")
    agent = Agent(loads(SERVICE, base=tmp_path))
    agent.start()
    try:
        yield Running(tmp_path)
    finally:
        agent.stop()
        agent.join(30)


def replace(path: Path, text: str | None) -> None:
    """A new file with this text in place of the other, or none."""
    if text is None:
        path.unlink()
        return
    new = path.with_name("new.csv")
    new.write_text(text)
    new.rename(path)


def test_records_get_the_values_of_the_newest_table_that_could_be_read(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pipelines.runners.tables.livetable")
    table = running.folder / "machines.csv"
    assert running.ask("m1") == "north"
    assert running.ask("m2") is None
    replace(table, "machine,line\nm1,west\nm2,south\n")
    until(lambda: running.ask("m1") == "west")
    assert running.ask("m2") == "south"
    for problem, text in (
        ("is there twice", "machine,line\nm1,east\nm1,east\n"),
        ("a quotation mark is never closed", 'machine,line\nm1,"ea'),
        ("is not there any more", None),
    ):
        replace(table, text)
        until(partial(said, caplog, problem))
        assert (running.ask("m1"), running.ask("m2")) == ("west", "south")
        assert said(caplog, problem) == 1
    table.write_text("machine,line\nm1,east\n")
    until(lambda: running.ask("m1") == "east")
    assert running.ask("m2") is None
    numbers = sorted(record["n"] for record in running.results)
    assert len(numbers) + len(running.dead) == running.asked
    assert len(set(numbers)) == len(numbers)


def said(caplog: pytest.LogCaptureFixture, text: str) -> int:
    return sum(text in message for message in caplog.messages)
