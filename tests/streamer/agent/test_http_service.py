"""A service that is asked over HTTP, alone or beside a topic: results and failures go back to where they came from."""

from __future__ import annotations

import json
import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx2
import numpy as np
import pytest
from countwindows import WindowStep, WithWindows
from waiting import until

import pipelines
import streamer
from connectors.http.endpoint.source import HttpSource
from connectors.memory.topic import memory_topic
from connectors.message import Message
from pipelines import Data
from pipelines.errors import DefinitionError, StreamerError
from pipelines.executors.ports import Ports
from pipelines.runners.models.model import Port
from streamer import testing
from streamer.agent.assembly import ports_for
from streamer.agent.running import agent_of

SOURCE = {"type": "http", "listen": "127.0.0.1:0", "codec": "json"}
SINK = {"type": "http", "codec": "json"}
CLIENT = httpx2.Client(timeout=20, limits=httpx2.Limits(max_keepalive_connections=0))


def halved(data: Data) -> Data | list[Data] | None:
    if data.get("wait", 0):
        time.sleep(data["wait"])
    if data.get("drop", False):
        return None
    if data.get("twice", False):
        return [data, data]
    if data["x"] < 0:
        raise RuntimeError("x is negative")
    return Data({"y": data["x"] / 2})


def service_of(**fields: Any) -> streamer.Service:
    given = {"name": "halves", "source": SOURCE, "sink": SINK, "pipeline": pipelines.Sequence([halved]), **fields}
    return streamer.Service(**given)


def source_of(service: streamer.Service) -> HttpSource:
    agent = agent_of(service)
    assert agent is not None
    return next(each.source for each in agent._loop.intakes if isinstance(each.source, HttpSource))


def ask(service: streamer.Service, body: bytes | dict[str, Any]) -> httpx2.Response:
    host, port = source_of(service).address
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return CLIENT.post(f"http://{host}:{port}/v1/{service.name.replace(' ', '%20')}", content=content)


def test_a_request_gets_its_result_or_what_was_wrong_with_it() -> None:
    with service_of() as service:
        answer = ask(service, {"x": 3})
        assert (answer.status_code, answer.json(), answer.headers["content-type"]) == (
            200,
            {"y": 1.5},
            "application/json",
        )
        wrong = ask(service, b"no json")
        assert (wrong.status_code, "no JSON" in wrong.json()["error"]) == (400, True)
        lacking = ask(service, {"z": 3})
        assert (lacking.status_code, 'key "x"' in lacking.json()["error"]) == (400, True)
        failed = ask(service, {"x": -1})
        assert (failed.status_code, failed.json()) == (500, {"error": "step 0:FUNCTION: RuntimeError: x is negative"})
        dropped = ask(service, {"drop": True})
        assert (dropped.status_code, "dropped" in dropped.json()["error"]) == (422, True)
        twice = ask(service, {"twice": True})
        assert (twice.status_code, "2 results" in twice.json()["error"]) == (500, True)


@pytest.mark.parametrize("on_error", ["stop", "drop"])
def test_a_client_that_sends_only_nonsense_stops_no_service(on_error: str) -> None:
    with service_of(on_error=on_error, errors={"stop_ratio": 0.1, "over": 10, "first": 5}) as service:
        assert {ask(service, b"bad").status_code for _ in range(40)} == {400}
        assert ask(service, {"x": 3}).status_code == 200


def test_results_go_back_to_where_their_records_came_from_and_failures_too() -> None:
    topic, results, dead = (memory_topic(uuid.uuid4().hex) for _ in range(3))
    service = service_of(
        source=[{"type": "memory", "topic": topic.name, "codec": "json", "name": "topic"}, SOURCE],
        sink=[{"type": "memory", "topic": results.name, "codec": "json", "sources": "topic"}, SINK],
        dead_letter={"type": "memory", "topic": dead.name},
    )
    with service:
        for number in range(50):
            topic.append(Message(b'{"x": %d}' % number, b"0"))
        topic.append(Message(b'{"x": -1}', b"0"))
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda number: ask(service, {"x": 1000 + number}), range(50)))
        assert [answer.json() for answer in answers] == [{"y": (1000 + number) / 2} for number in range(50)]
        assert ask(service, {"x": -1}).status_code == 500
        assert until(lambda: len(results.messages()) == 50)
        assert sorted(json.loads(each.value or b"")["y"] for each in results.messages()) == [n / 2 for n in range(50)]
        assert until(lambda: len(dead.messages()) == 1)
    assert len(dead.messages()) == 1


def test_without_a_sink_that_answers_a_request_is_done_when_all_sinks_have_its_results() -> None:
    results, dead = memory_topic(uuid.uuid4().hex), memory_topic(uuid.uuid4().hex)
    service = service_of(
        source={**SOURCE, "key": "headers.X-Device"},
        sink={"type": "memory", "topic": results.name, "codec": "json"},
        dead_letter={"type": "memory", "topic": dead.name},
    )
    with service:
        host, port = source_of(service).address
        answer = CLIENT.post(f"http://{host}:{port}/v1/halves", content=b'{"x": 4}', headers={"x-device": "pump"})
        assert (answer.status_code, answer.content) == (202, b"")
        (message,) = results.messages()
        assert (message.key, json.loads(message.value or b"")) == (b"pump", {"y": 2.0})
        assert ask(service, b"bad").status_code == 202
        assert len(dead.messages()) == 1


def test_a_service_that_stops_answers_what_it_has_accepted_and_refuses_new_requests() -> None:
    service = service_of(batch={"max_records": 1})
    answers: list[httpx2.Response] = []
    with service:
        source = source_of(service)
        threads = [
            threading.Thread(target=lambda: answers.append(ask(service, {"x": 2, "wait": 0.1}))) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        assert until(lambda: source._open[2].running + source._open[2].waiting == 8)
        service.stop()
        assert until(lambda: not source._open[2].is_open)
        host, port = source.address
        late = CLIENT.post(f"http://{host}:{port}/v1/halves", content=b'{"x": 2}')
        assert (late.status_code, "retry-after" in late.headers) == (503, True)
        for thread in threads:
            thread.join()
    assert [answer.status_code for answer in answers] == [200] * 8


def test_requests_gather_while_a_batch_runs() -> None:
    sizes: list[int] = []

    def slow(batch: pipelines.Batch) -> pipelines.Batch:
        sizes.append(batch.size)
        time.sleep(0.1)
        return batch

    with service_of(pipeline=pipelines.Sequence([pipelines.batched(slow)])) as service:
        assert ask(service, {"x": 1}).status_code == 200
        with ThreadPoolExecutor(16) as pool:
            assert {answer.status_code for answer in pool.map(lambda n: ask(service, {"x": n}), range(48))} == {200}
    assert sum(sizes) == 49
    assert len(sizes) < 30


def test_sinks_that_answer_are_refused_where_they_could_answer_nobody() -> None:
    with pytest.raises(ValueError, match="the service has no http source"):
        service_of(source={"type": "memory", "topic": "a"})
    with pytest.raises(ValueError, match="are told of failures by the sink of type http"):
        service_of(dead_letter={"type": "http"})
    with pytest.raises(ValueError, match="cannot be committed by transactions"):
        service_of(delivery="exactly_once")


def test_a_step_that_holds_records_is_refused_where_clients_wait_for_their_answers() -> None:
    service = service_of().model_copy(update={"pipeline": WithWindows([WindowStep(stride=3), halved])})
    with (
        pytest.raises(DefinitionError, match="answers each request, and a step of the pipeline holds records"),
        service,
    ):
        pass


def test_several_processes_cannot_listen_at_one_address() -> None:
    (source,) = service_of().sources
    assert source.undivided is not None
    assert "limits.parallel" in source.undivided


def test_a_port_that_another_program_has_ends_the_service_with_what_to_do() -> None:
    with service_of() as first:
        port = source_of(first).address[1]
        with (
            pytest.raises(StreamerError, match="choose another address or port"),
            service_of(source={**SOURCE, "listen": f"localhost:{port}"}),
        ):
            pass


def test_a_sink_with_the_codec_of_requests_names_the_service_whatever_the_records_were() -> None:
    service = streamer.loads("""
name: halves
source: {type: memory, topic: in, codec: json}
pipeline: []
sink:
  - {type: memory, topic: out, name: first, codec: inference}
  - {type: memory, topic: other, name: other, codec: {type: inference, model: mine}}
""")
    report = testing.run(service, [{"x": 1.5}])
    named = [json.loads(report.sinks[sink][0].value or b"")["model_name"] for sink in ("first", "other")]
    assert named == ["halves", "mine"]


def test_what_records_bring_and_results_have_is_less_known_with_metadata_and_kept_values() -> None:
    port = Port("x", np.dtype(np.float32), (None, 4))
    known = Ports((port, replace(port, name="device")), (), (port,))
    service = service_of(source={**SOURCE, "into": {"client": "device"}})
    assert ports_for(service, service.sources[0], known) == Ports((port,), (), (port,))
    kept = service.model_copy(update={"keep": ["x"]})
    assert ports_for(kept, service.sources[0], known).outputs is None
