"""The README's service of fans as a user has it: checked, run, fed, looked at, mended, and its dead letter replayed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from onnx import TensorProto, helper, save
from pageblocks import ROOT, blocks_of

from drawn.recording import Screen, recorded, screens
from drawn.terminal import plain
from streamer.devbroker import create_topics

COLUMNS: Final = 66
NAME: Final = "fans"
"""The name of the service, and the beginning of its topics' names, in the README."""
RECORDS: Final = (
    '{"machine": "m1", "temp": 21.5, "vib": 30}',
    '{"machine": "m2", "temp": 24.0, "vib": 12}',
    '{"machine": "m3", "temp": 22.5}',
)
"""The last one lacks what the model needs."""
REPAIR: Final = '''\
def vibration(data):
    """Fans without a sensor stand still."""
    if "vib" not in data:
        data["vib"] = 0.0
    return data
'''
STEP: Final = '{"@type": FUNCTION, function: "gaps:vibration"}'
_SECONDS: Final = 120.0


class FansRun(NamedTuple):
    """What the commands showed, and the records as `streamer tap --json` prints them."""

    check: Screen
    send: Screen
    results: Screen
    """The results of the records that the model could take."""
    letters: Screen
    """The dead letter."""
    letter: dict[str, Any]
    replay: Screen
    again: dict[str, Any]
    """The record that was replayed, where it is now."""
    result: dict[str, Any]
    """Its result, by the mended service."""


def run(folder: Path, bootstrap: str, name: str = NAME) -> FansRun:
    """Do all of it in an empty folder and on this broker. `name` stands for that of the README, so that several can be
    on one broker. Raises `TimeoutError` or `RuntimeError` if a command does not do what it should."""
    create_topics(bootstrap, {f"{name}.{topic}": 1 for topic in ("readings", "risks", "dead")})
    (block,) = [block for block in blocks_of(ROOT / "README.md") if block.value == "fans.yaml"]
    file = folder / f"{name}.yaml"
    file.write_text(block.text.replace(f"{NAME}.", f"{name}."))
    _save_model(folder / f"{name}.onnx")
    (folder / "records.jsonl").write_text("".join(f"{record}\n" for record in RECORDS))
    user = _User(folder, {"KAFKA_BOOTSTRAP_SERVERS": bootstrap})
    check = user.sees("check", file.name)
    with user.running(file):
        send = user.sees("send", file.name, "records.jsonl")
        results = user.sees("tap", file.name, "--from", "earliest", "-n", "2")
        letters = user.sees("tap", file.name, "--sink", "dead_letter", "--from", "earliest", "-n", "1")
        (letter,) = user.reads(file, 1, "--sink", "dead_letter")
    (folder / "gaps.py").write_text(REPAIR)
    file.write_text(file.read_text().replace("pipeline: [", f"pipeline: [{STEP}, "))
    with user.running(file):
        replay = user.sees("replay", file.name)
        result = user.reads(file, len(RECORDS))[-1]
        again = user.reads(file, len(RECORDS) + 1, "--source", "kafka")[-1]
    return FansRun(check, send, results, letters, letter, replay, again, result)


class _User(NamedTuple):
    """Somebody who types commands in a folder."""

    folder: Path
    environment: Mapping[str, str]

    def sees(self, *words: str) -> Screen:
        """What a command leaves on the terminal."""
        command = [sys.executable, "-m", "streamer", *words]
        screen = screens(
            recorded(command, COLUMNS, folder=self.folder, environment=self.environment, seconds=_SECONDS)
        )[-1]
        while screen and not plain(screen[-1:])[0]:
            screen = screen[:-1]
        return screen

    def reads(self, file: Path, count: int, *options: str) -> list[dict[str, Any]]:
        """The first records of a topic of the service, in the order in which they came to it."""
        command = [sys.executable, "-m", "streamer", "tap", file.name, "--from", "earliest", "--json"]
        done = subprocess.run(  # noqa: S603
            [*command, "--count", str(count), *options],
            cwd=self.folder,
            env={**os.environ, **self.environment},
            check=True,
            capture_output=True,
            timeout=_SECONDS,
        )
        records: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
        return sorted(records, key=lambda record: record["timestamp"])

    @contextmanager
    def running(self, file: Path) -> Iterator[None]:
        """The service runs within the block."""
        command = [sys.executable, "-m", "streamer", "run", file.name]
        with (
            (self.folder / "run.log").open("ab") as log,
            subprocess.Popen(  # noqa: S603
                command, cwd=self.folder, env={**os.environ, **self.environment}, stdout=log, stderr=log
            ) as process,
        ):
            try:
                yield
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(_SECONDS)


def _save_model(path: Path) -> None:
    """A model as the README's: of `x`, temperature and vibration, the mean is `risk`."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])
    risk = helper.make_tensor_value_info("risk", TensorProto.FLOAT, ["N", 1])
    graph = helper.make_graph([helper.make_node("ReduceMean", ["x"], ["risk"], axes=[1])], "fans", [x], [risk])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
