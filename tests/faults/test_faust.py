"""Workers of a Faust app with a service in it are killed, join and leave, while records pass. Nothing may be lost."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from exactlyonce import wait_for

pytestmark = pytest.mark.slow

STEPS = '''
"""The pipeline of the service under test."""
import os, time
import pipelines


@pipelines.batched
def passed_on(batch):
    time.sleep(float(os.environ["STEP_SLEEP"]))
    return batch.without(["filler"])
'''

SERVICE = """
name: {group}
source: {{type: kafka, bootstrap: "{bootstrap}", topics: [{source}]}}
pipeline: {{steps: [{{"@type": FUNCTION, function: "ledger_steps:passed_on"}}]}}
batch: {{max_records: 200}}
sink: {{type: kafka, topic: {sink}}}
dead_letter: {{type: kafka, topic: {dead}}}
"""

SETTINGS = "broker_session_timeout=6.0, broker_heartbeat_interval=0.5, datadir='data'"

STREAMER = f"""
import streamer.faust

app = streamer.faust.app("service.yaml", {SETTINGS})
"""

SECOND = """
name: second
source: {{type: kafka, bootstrap: "{bootstrap}", topics: [{middle}]}}
pipeline: {{steps: [{{"@type": FUNCTION, function: "ledger_steps:passed_on"}}]}}
delivery: at_most_once
sink: {{type: kafka, topic: {sink}}}
"""

BOTH = f"""
import faust
import streamer.faust

app = faust.App(
    "{{group}}", broker="kafka://{{bootstrap}}", store="memory://", web_enabled=False, topic_disable_leader=True,
    consumer_auto_offset_reset="earliest", broker_commit_interval=1.0, {SETTINGS}
)
streamer.faust.attach(app, "service.yaml")
streamer.faust.attach(app, "second.yaml")
"""

TAKE = f"""
import asyncio, os
import faust
from pipelines import Data

raw = dict(key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")
app = faust.App(
    "{{group}}", broker="kafka://{{bootstrap}}", store="memory://", web_enabled=False, topic_disable_leader=True,
    consumer_auto_offset_reset="earliest", broker_commit_interval=1.0, {SETTINGS}
)
into, out = app.topic("{{source}}", **raw), app.topic("{{sink}}", **raw)


def passed_on(value):
    data = Data.from_bytes(value)
    del data["filler"]
    return data.to_bytes()


@app.agent(into)
async def infer(stream):
    async for values in stream.take(200, within=0.05):
        await asyncio.sleep(float(os.environ["STEP_SLEEP"]))
        results = [passed_on(value) for value in values]
        await asyncio.gather(*[await out.send(key=Data.from_bytes(one)["key"].encode(), value=one) for one in results])
"""


@pytest.fixture
def start(ledger: Any, topics: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """`start(module)` starts a worker of this text as a module, `start.run` the service in `start.file` by `streamer
    run`; `start.dead` is the topic of dead letters, `start.names` what a file is
    filled with."""
    members: list[Any] = []
    # The class of the folder's conftest, which no test module can import.
    member_of = sys.modules[type(ledger).__module__].Member
    dead = topics(1, "ledger-dead")
    names = {"bootstrap": ledger.bootstrap, "source": ledger.source, "sink": ledger.sink, "dead": dead}
    names["group"] = ledger.group
    (tmp_path / "ledger_steps.py").write_text(STEPS)
    (tmp_path / "service.yaml").write_text(SERVICE.format(**names))

    def made(module: str, sleep: float = 0.0) -> Any:
        (tmp_path / "worker.py").write_text(module if module is STREAMER else module.format(**names))
        members.append(
            member_of(tmp_path, ["-m", "faust", "-A", "worker", "worker", "--loglevel", "warn", "--without-web"], sleep)
        )
        return members[-1]

    def run(*arguments: str) -> Any:
        members.append(member_of(tmp_path, ["-m", "streamer", "run", "service.yaml", *arguments], 0.0))
        return members[-1]

    made.run = run  # type: ignore[attr-defined]
    made.file = tmp_path / "service.yaml"  # type: ignore[attr-defined]
    made.dead = dead  # type: ignore[attr-defined]
    made.names = names  # type: ignore[attr-defined]
    yield made
    for member in members:
        if member.process.poll() is None:
            member.kill()


def disturbed(ledger: Any, start: Callable[..., Any], module: str, kills: int, records: int) -> None:
    """Workers are killed so often, then two share the partitions, then one of them leaves, until all is committed."""
    chance = random.Random(kills)
    ledger.write(records, poison=0.01)
    for _ in range(kills):
        member = start(module, 0.1)
        wait_for(ledger, ledger.sample() + 1, 120, member)
        time.sleep(chance.uniform(0.0, 0.7))
        member.kill()
    first = start(module, 0.2)
    wait_for(ledger, ledger.sample() + 1, 120, first)
    second = start(module, 0.2)
    wait_for(ledger, ledger.sample() + (records - ledger.sample()) // 2, 120, second)
    # So that there is something to do while the first leaves.
    ledger.write(records // 4, seed=2, poison=0.01)
    assert first.stop() == 0, first.text()
    wait_for(ledger, ledger.total() + len(ledger.poison), 240, second)
    assert second.stop() == 0, second.text()


def dead_letters(ledger: Any, topic: str) -> set[bytes]:
    from kafkatopics import read

    return {one.value for one in read(ledger.bootstrap, topic, len(ledger.poison), 30)}


@pytest.mark.timeout(400)
def test_a_kill_and_a_rebalance_lose_nothing_and_poison_becomes_dead_letters(ledger: Any, start: Any) -> None:
    disturbed(ledger, start, STREAMER, kills=1, records=6_000)
    ledger.check()
    assert dead_letters(ledger, start.dead) == ledger.poison


@pytest.mark.timeout(300)
def test_a_service_that_fails_ends_its_worker_and_the_next_gets_what_it_did_not_finish(ledger: Any, start: Any) -> None:
    ledger.write(500)
    ledger.write(1, poison=1.0)
    ledger.write(500)
    whole = start.file.read_text()
    start.file.write_text(whole.partition("dead_letter")[0])
    failed = start.run("--engine", "faust", "--json")
    assert failed.process.wait(90) == 1, failed.text()
    assert "poison" in failed.text() or "no ProtoData" in failed.text()
    assert ledger.sample() < ledger.total() + 1
    start.file.write_text(whole)
    second = start.run("--engine", "faust", "--json")
    wait_for(ledger, ledger.total() + 1, 120, second)
    assert second.stop() == 0, second.text()
    assert '"reason": "stopped"' in second.text()
    ledger.check()
    assert dead_letters(ledger, start.dead) == ledger.poison


@pytest.mark.timeout(300)
def test_two_services_of_one_app_each_keep_their_own_guarantee(ledger: Any, topics: Any, start: Any) -> None:
    """The second reads the messages of the first, and acknowledges them at once."""
    names = {**start.names, "middle": topics(2, "ledger-middle")}
    start.file.write_text(SERVICE.format(**{**names, "sink": names["middle"]}))
    start.file.with_name("second.yaml").write_text(SECOND.format(**names))
    ledger.write(2_000, poison=0.01)
    worker = start(BOTH)
    wait_for(ledger, ledger.total() + len(ledger.poison), 120, worker)
    deadline = time.monotonic() + 60
    while len(ledger.read_results()) < ledger.total() and time.monotonic() < deadline:
        assert worker.process.poll() is None, worker.text()
    assert worker.stop() == 0, worker.text()
    results = sorted((key, seq) for _, _, key, seq in ledger.read_results())
    assert results == sorted((key, seq) for key, count in ledger.written.items() for seq in range(count))
    assert dead_letters(ledger, start.dead) == ledger.poison


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_five_kills_and_a_rebalance_lose_nothing(ledger: Any, start: Any) -> None:
    disturbed(ledger, start, STREAMER, kills=5, records=40_000)
    print(f"\nrepeated: {ledger.check():.1%}, dead letters: {len(ledger.poison)}")
    assert dead_letters(ledger, start.dead) == ledger.poison


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_the_same_with_fausts_own_take_loses_records(ledger: Any, start: Any) -> None:
    disturbed(ledger, start, TAKE, kills=5, records=40_000)
    there = {(key, seq) for _, _, key, seq in ledger.read_results()}
    lost = ledger.total() - len(there)
    print(f"\nlost by take: {lost} of {ledger.total()}")
    assert lost > 0
