"""Which services several workers can run; the others are refused, with file, line and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import DefinitionError
from streamer.definition.loading import load, load_all
from streamer.workers.division import LOCAL, for_worker, refusals
from streamer.workers.plan import Asked, Plan
from streamer.workers.planning import plan

KAFKA = "source: {type: kafka, topics: in, group: g}\n"
TO_KAFKA = "sink: {type: kafka, topic: out}\n"


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: Any) -> None:
    # The plan sets it for its process.
    monkeypatch.setenv("STREAMER_WORKER", "0")


def planned(folder: Path, text: str, workers: int = 2) -> Plan:
    file = folder / "digits.yaml"
    file.write_text(f"pipeline: []\n{text}")
    return plan(Asked(workers, [str(file)]))


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("source: {type: file, path: in.jsonl}\n" + TO_KAFKA, 2, "each process would read all records of a source of"),
        (
            "source: {type: camera, cameras: {a: 'film.mp4'}}\n" + TO_KAFKA,
            2,
            "each process would read all records of a source of",
        ),
        ("source: {type: mqtt, topics: a, client_id: 'a${STREAMER_WORKER}'}\n" + TO_KAFKA, 2, "add share"),
        ("source: {type: mqtt, topics: a, share: g}\n" + TO_KAFKA, 2, "client_id: all workers would have"),
        ("source: {type: mqtt_endpoint}\n" + TO_KAFKA, 2, "each process would read all records of a source of"),
        ("source: {type: memory, topic: a}\n" + TO_KAFKA, 2, "in the memory of one process"),
        (KAFKA.replace("group: g", "instance: i") + TO_KAFKA, 2, "instance: all workers would have i"),
        (KAFKA + "sink:\n  - {type: kafka, topic: out}\n  - {type: file, path: out.jsonl}\n", 5, "path: all workers"),
        (KAFKA + TO_KAFKA.replace("out", "out, outbox: {path: o}"), 3, "outbox.path: all workers would have"),
        (KAFKA + TO_KAFKA + "dead_letter: {type: mqtt, topic: d}\n", 4, "client_id: all workers would have"),
        (KAFKA + TO_KAFKA + "profile: {file: p.json}\n", 4, "profile.file: all workers would write"),
        (KAFKA + TO_KAFKA + "state: {path: a.state}\n", 4, "a file has the state of one process"),
    ],
)
def test_what_several_processes_cannot_share_is_refused_with_its_line(
    tmp_path: Path, text: str, line: int, said: str
) -> None:
    with pytest.raises(DefinitionError) as error:
        planned(tmp_path, text)
    assert str(error.value).startswith(f"{tmp_path}/digits.yaml:{line}: service digits: ")
    assert said in str(error.value)
    if "all workers" in said:
        assert "make it differ by ${STREAMER_WORKER}" in str(error.value)


@pytest.mark.parametrize(
    "text",
    [
        KAFKA + TO_KAFKA,
        KAFKA.replace("group: g", "instance: 'i-${STREAMER_WORKER}'") + TO_KAFKA,
        "source: {type: mqtt, topics: a, share: g, client_id: 'a${STREAMER_WORKER}'}\n" + TO_KAFKA,
        KAFKA + "sink: {type: file, path: 'out-${STREAMER_WORKER}.jsonl'}\n",
        KAFKA + TO_KAFKA + "profile: {file: 'p${STREAMER_WORKER}.json'}\n",
    ],
)
def test_what_differs_from_worker_to_worker_is_accepted(tmp_path: Path, text: str) -> None:
    assert [service.name for service in planned(tmp_path, text).services] == ["digits"]


def test_a_single_worker_may_run_any_service(tmp_path: Path) -> None:
    text = "source: {type: file, path: in.jsonl}\nsink: {type: file, path: out.jsonl}\n"
    assert planned(tmp_path, text, workers=1).services[0].stuck == 120


def test_the_parent_is_told_the_control_port_and_when_a_batch_hangs(tmp_path: Path) -> None:
    control = "control: {listen: '0.0.0.0:9464', token: long-secret, hosts: [a.example.com]}\nlimits: {stuck: 5s}\n"
    plan_of_it = planned(tmp_path, KAFKA + TO_KAFKA + control)
    again = Plan.from_json(plan_of_it.to_json())
    assert again == plan_of_it
    assert again.services[0] == ("digits", 5, "0.0.0.0:9464", "long-secret", ("a.example.com",))


def test_a_worker_is_a_static_member_with_a_control_port_of_its_own_and_puts_nothing_back(tmp_path: Path) -> None:
    file = tmp_path / "digits.yaml"
    reset = KAFKA.replace("group: g", "group: g, reset: earliest")
    file.write_text(f"pipeline: []\n{reset}{TO_KAFKA}control: {{listen: '127.0.0.1:9464', token: secret}}\n")
    service = for_worker(load(file), 3)
    source: Any = service.sources[0]
    assert source.instance.startswith("g-")
    assert source.instance.endswith("-3")
    assert source.reset is None
    assert service.control is not None
    assert service.control.listen == LOCAL
    assert service.control.token is not None
    assert service.control.token.get_secret_value() == "secret"


def test_every_service_of_a_file_is_looked_at(tmp_path: Path) -> None:
    file = tmp_path / "two.yaml"
    good = f"name: good\npipeline: []\n{KAFKA}{TO_KAFKA}"
    file.write_text(f"{good}---\n{good.replace('good', 'bad').replace('group: g', 'instance: i')}")
    both = load_all(file)
    assert [len(refusals(service, service)) for service in both] == [0, 1]
