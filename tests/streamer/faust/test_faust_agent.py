"""A service as an agent of a Faust app, without a broker: in the agent's `test_context`, and what is refused."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import faust
import pytest

import streamer.faust
from connectors.registry import SOURCES
from pipelines import Data
from pipelines.errors import DefinitionError, StreamerError
from pipelines.plugins.requirements import Package
from streamer.faust.fitting import check_alone
from streamer.testing import DeadLetter

SERVICE = """
name: doubled
source: {type: kafka, topics: [numbers], codec: json}
pipeline: {steps: [{"@type": FUNCTION, function: "doubling:double"}]}
sink: {type: kafka, topic: results, codec: json}
dead_letter: {type: kafka, topic: dead}
"""

STEP = """
def double(data):
    if data["x"] < 0:
        return None
    data["y"] = 2 * data["x"]
    return data
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "doubling.py").write_text(STEP)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "doubling", raising=False)
    path = tmp_path / "service.yaml"
    path.write_text(SERVICE)
    return path


def written(file: Path, old: str, new: str) -> Path:
    """The service with this difference."""
    assert old in SERVICE
    file.write_text(SERVICE.replace(old, new))
    return file


def payload(x: float) -> bytes:
    return json.dumps({"x": x}).encode()


def new_app(**settings: Any) -> faust.App:
    return faust.App("orders", broker="kafka://localhost:9092", store="memory://", **settings)


async def put(agent: Any, *payloads: bytes, **more: Any) -> list[Any]:
    """What the agent yields for these records."""
    async with agent.test_context() as tested:
        for one in payloads:
            await tested.put(one, **more)
        return list(tested.results.values())


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def test_a_test_context_gives_results_and_dead_letters_without_a_broker(file: Path) -> None:
    async def tried() -> list[Any]:
        return await put(streamer.faust.attach(new_app(), file), payload(3), b"no JSON", payload(4))

    first, dead, last = run(tried())
    assert first == Data({"x": 3, "y": 6})
    assert isinstance(dead, DeadLetter)
    assert (dead.message.value, dead.step, dead.origin.topic) == (b"no JSON", "decode", "numbers")
    assert last == Data({"x": 4, "y": 8})


def test_results_know_their_record(file: Path) -> None:
    async def tried() -> list[Any]:
        agent = streamer.faust.attach(new_app(), file)
        return await put(agent, payload(3), key=b"k", headers={"trace": b"1"})

    (result,) = run(tried())
    assert (result.record.topic, result.record.key, result.record.headers) == ("numbers", b"k", (("trace", b"1"),))


def test_keys_headers_and_times_are_read_as_the_source_says(file: Path) -> None:
    more = "key: long, headers: {seq: integer}, time: {field: x, unit: s}, into: {key: id, headers.seq: seq}"

    async def tried() -> list[Any]:
        service = written(file, "topics: [numbers]", f"topics: [numbers], {more}")
        agent = streamer.faust.attach(new_app(), service)
        headers = {"seq": b"17"}
        good = await put(agent, payload(3), key=(7).to_bytes(8, "big"), headers=headers)
        return good + await put(agent, payload(4), key=b"seven", headers=headers)

    result, dead = run(tried())
    assert result == Data({"x": 3, "y": 6, "id": 7, "seq": 17})
    assert result.record.timestamp == 3000
    assert (dead.step, dead.message.key) == ("decode", b"seven")


def test_a_target_of_latency_works(file: Path) -> None:
    async def tried() -> list[Any]:
        service = written(file, "name: doubled", "name: doubled\nbatch: {target_latency: 20ms}")
        return await put(streamer.faust.attach(new_app(), service), payload(3), payload(4))

    assert [result["y"] for result in run(tried())] == [6, 8]


def test_an_app_of_a_service_has_its_agent_and_its_group(file: Path) -> None:
    async def tried() -> tuple[faust.App, list[Any]]:
        app = streamer.faust.app(file, broker="kafka://somewhere:1234")
        return app, await put(app.agents["doubled"], payload(1))

    app, results = run(tried())
    assert app.conf.id == "doubled"
    assert str(app.conf.broker[0]) == "kafka://somewhere:1234"
    assert results == [Data({"x": 1, "y": 2})]


def test_the_agents_sinks_get_every_result(file: Path) -> None:
    seen: list[Any] = []

    async def tried() -> list[Any]:
        return await put(streamer.faust.attach(new_app(), file, sink=[seen.append]), payload(1), payload(2))

    assert run(tried()) == seen == [Data({"x": 1, "y": 2}), Data({"x": 2, "y": 4})]


def test_a_service_that_fails_ends_its_agent(file: Path) -> None:
    async def tried() -> None:
        agent = streamer.faust.attach(new_app(), written(file, "dead_letter: {type: kafka, topic: dead}", ""))
        await put(agent, b"no JSON")

    with pytest.raises(StreamerError, match=r"doubled failed.*numbers"):
        run(tried())


def test_a_missing_model_ends_the_agent_before_it_reads(file: Path) -> None:
    async def tried() -> None:
        step = '{"@type": ONNX, modelUri: missing.onnx}'
        agent = streamer.faust.attach(
            new_app(), written(file, '{"@type": FUNCTION, function: "doubling:double"}', step)
        )
        await put(agent, payload(1))

    with pytest.raises(StreamerError, match=r"missing\.onnx"):
        run(tried())


def test_the_event_loop_goes_on_while_the_pipeline_runs(file: Path) -> None:
    (file.parent / "doubling.py").write_text("import time\n\ndef double(data):\n    time.sleep(0.5)\n    return data\n")
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    async def tried() -> int:
        agent = streamer.faust.attach(new_app(), file)
        async with agent.test_context() as tested:
            ticking = asyncio.ensure_future(tick())
            before = ticks
            await tested.put(payload(1))
            ticking.cancel()
            return ticks - before

    # One or two if the loop stood still meanwhile.
    assert run(tried()) > 5


REFUSED = [
    ("name: doubled", "name: doubled\ndelivery: exactly_once", "service.yaml:3: delivery: exactly_once"),
    ("name: doubled", "name: doubled\nhot_path: native", "service.yaml:3: hot_path: native"),
    ("{type: kafka, topics: [numbers], codec: json}", "{type: memory, topic: a}", "service.yaml:3: source.type:"),
    ("topics: [numbers]", "topics: [^num]", "service.yaml:3: source.topics:"),
    ("topics: [numbers]", "topics: [numbers], start: 2026-01-01T00:00:00Z", "service.yaml:3: source.start:"),
    ("topics: [numbers]", "topics: [numbers], client: {fetch.min.bytes: 1}", "service.yaml:3: source.client.*Faust"),
    ("topics: [numbers]", "topics: [numbers], assignor: range", "service.yaml:3: source.assignor:"),
    ("topics: [numbers]", "topics: [numbers], out_of_range: stop", "service.yaml:3: source.out_of_range:"),
    (
        "topic: results, codec: json}",
        "topic: results, compression: lz4}",
        "service.yaml:5: sink.compression:.*producer",
    ),
    ("{type: kafka, topic: results, codec: json}", "[{type: memory, topic: a}]", "service.yaml:5: sink\\[0\\].type:"),
    ("topic: dead}", "topic: dead, bootstrap: other:9092}", "service.yaml:6: dead_letter.bootstrap:.*another bus"),
]


@pytest.mark.parametrize(("old", "new", "message"), REFUSED)
def test_settings_that_faust_cannot_honour_are_refused_with_file_and_line(
    file: Path, old: str, new: str, message: str
) -> None:
    with pytest.raises(DefinitionError, match=message):
        streamer.faust.attach(new_app(), written(file, old, new))
    with pytest.raises(DefinitionError, match=message):
        streamer.faust.app(file)


def test_several_sources_are_refused(file: Path) -> None:
    one = "{type: kafka, topics: [numbers], codec: json}"
    with pytest.raises(DefinitionError, match=r"service.yaml:3: source: .*2 sources"):
        streamer.faust.attach(new_app(), written(file, one, f"[{one}, {one}]"))


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ("group: mine", r"service.yaml:3: source.group: .*orders"),
        ("bootstrap: other:9092", r"service.yaml:3: source.bootstrap: other:9092 is another bus"),
        ("start: latest", r"service.yaml:3: source.start: .*earliest"),
    ],
)
def test_a_service_file_that_contradicts_the_app_is_refused(file: Path, added: str, message: str) -> None:
    written(file, "topics: [numbers]", f"topics: [numbers], {added}")
    with pytest.raises(DefinitionError, match=message):
        streamer.faust.attach(new_app(), file)
    streamer.faust.app(file)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"processing_guarantee": "exactly_once"}, "exactly_once"),
        ({"producer_acks": 1}, "producer_acks"),
        ({"broker": "confluent://localhost:9092"}, "confluent"),
    ],
)
def test_an_app_that_would_lose_records_is_refused(file: Path, settings: dict[str, Any], message: str) -> None:
    app = faust.App("orders", **{"broker": "kafka://localhost:9092", **settings})
    with pytest.raises(DefinitionError, match=message):
        streamer.faust.attach(app, file)


def test_more_than_one_actor_is_refused(file: Path) -> None:
    with pytest.raises(DefinitionError, match="concurrency is 2"):
        streamer.faust.attach(new_app(), file, concurrency=2)


def test_a_service_made_in_python_is_checked_too(file: Path) -> None:
    service = streamer.load(written(file, "topics: [numbers]", "topics: [numbers], max_fetch: 1MiB"))
    with pytest.raises(DefinitionError, match=r"source.max_fetch: .*consumer_max_fetch_size"):
        streamer.faust.attach(new_app(), service)


def test_another_agent_on_the_same_topic_is_refused(file: Path) -> None:
    app = new_app()
    agent = streamer.faust.attach(app, file)
    check_alone(streamer.load(file), app, agent)

    @app.agent(app.topic("numbers"))
    async def second(stream: Any) -> None: ...

    with pytest.raises(DefinitionError, match=r"second.*reads numbers too"):
        check_alone(streamer.load(file), app, agent)


def test_the_command_line_runs_one_service_at_a_time(file: Path, cli: Any) -> None:
    file.write_text(f"{SERVICE}\n---\n{SERVICE.replace('name: doubled', 'name: other')}")
    ran = cli("run", str(file), "--engine", "faust")
    assert ran.code == 2
    assert "one service in a process" in ran.err


@pytest.mark.slow
def test_faust_is_imported_only_where_it_is_used() -> None:
    program = "import sys, streamer; streamer.load; print('faust' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "False\n"


def test_our_package_does_not_hide_faust() -> None:
    assert faust.App.__module__.startswith("faust.")
    assert streamer.faust.attach.__module__ == "streamer.faust.attaching"


def test_a_package_that_replaces_its_own_module_counts_as_installed() -> None:
    # Faust puts an object without a spec into sys.modules.
    assert getattr(sys.modules["faust"], "__spec__", None) is None
    assert Package("faust").lacking() is None
    assert "faust" not in SOURCES.known
