"""Saved state belongs to a step by its name or type, and is refused by a step of another shape."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

import streamer
from pipelines.errors import ConnectorError, DefinitionError
from pipelines.runners.state.item import Change
from pipelines.steps.keyed.dedup import Dedup
from pipelines.steps.keyed.join import Join
from pipelines.steps.keyed.window import Window
from streamer.definition.settings import StateTopicSettings
from streamer.state.agreement import agreed, check_topics, check_transactions, identities
from streamer.state.contents import Chosen, Totals
from streamer.state.filecontents import FileContents
from streamer.state.filestore import FileStore
from streamer.state.store import Scope

SCOPE = Scope("kafka", "pumps-0")


def window(**fields: Any) -> Window:
    return Window.model_validate({"by": "device", "size": 4, "values": "x", "outputName": "y", **fields})


def dedup(**fields: Any) -> Dedup:
    return Dedup.model_validate({"by": "device", "for": "10s", **fields})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[FileStore]:
    made = FileStore(tmp_path / "a.state", "service")
    made.open()
    yield made
    made.close()


def saved(store: FileStore, step: str, key: str = '"a"') -> None:
    store.save([(SCOPE, step, Change(None, key, 0, b"\x01state"))], {SCOPE: 7})


def test_a_step_keeps_its_state_when_another_is_put_before_it() -> None:
    before = identities({"0:WINDOW": window(), "1:WINDOW": window(), "fast": dedup()})
    assert before == {"0:WINDOW": "WINDOW", "1:WINDOW": "WINDOW-2", "fast": "fast"}
    assert identities({"0:DEDUP": dedup(), "1:WINDOW": window()}) == {"0:DEDUP": "DEDUP", "1:WINDOW": "WINDOW"}
    assert identities({"outer/0:WINDOW": window()}) == {"outer/0:WINDOW": "outer/WINDOW"}


def test_a_changed_size_is_refused_with_the_field_and_the_remedy(store: FileStore) -> None:
    agreed(store, {"0:WINDOW": window()}, structlog.get_logger())
    saved(store, "WINDOW")
    assert agreed(store, {"0:WINDOW": window(keys=5)}, structlog.get_logger()) == {"0:WINDOW": "WINDOW"}
    text = f"WINDOW has the size 8, and its saved state was made with 4; go back, .* forget {store.path} --step WINDOW"
    with pytest.raises(DefinitionError, match=text):
        agreed(store, {"0:WINDOW": window(size=8)}, structlog.get_logger())


def test_a_name_that_another_type_of_step_had_is_refused(store: FileStore) -> None:
    agreed(store, {"a": window()}, structlog.get_logger())
    saved(store, "a")
    with pytest.raises(DefinitionError, match="a is a DEDUP, and its saved state is of a WINDOW"):
        agreed(store, {"a": dedup()}, structlog.get_logger())


def test_state_of_a_step_that_is_gone_is_kept_with_a_warning(store: FileStore) -> None:
    agreed(store, {"0:WINDOW": window()}, structlog.get_logger())
    saved(store, "WINDOW")
    with structlog.testing.capture_logs() as logs:
        agreed(store, {"0:DEDUP": dedup()}, structlog.get_logger())
    assert [(line["log_level"], line["step"]) for line in logs] == [("warning", "WINDOW")]
    assert set(store.steps()) == {"WINDOW", "DEDUP"}


def test_keys_are_forgotten_one_by_one_or_all(store: FileStore) -> None:
    agreed(store, {"0:WINDOW": window(), "1:DEDUP": dedup()}, structlog.get_logger())
    for key in ('"pump-1"', '"pump-2"'):
        saved(store, "WINDOW", key)
        saved(store, "DEDUP", key)
    file = FileContents(store.path)
    with pytest.raises(ConnectorError, match="is being written by another service"):
        file.forget(None, None)
    store.close()
    chosen = Chosen(file, "WINDOW", None)
    assert [each.key for part in file.partitions() for each in chosen.of(part)] == ['"pump-1"', '"pump-2"']
    assert file.forget("WINDOW", "pump-1") == 1
    totals = Totals(file)
    for partition in file.partitions():
        totals.add(partition)
    assert {name: step["keys"] for name, step in totals.steps.items()} == {"WINDOW": 1, "DEDUP": 2}
    with pytest.raises(ConnectorError, match='there is no key "pump-3"; did you mean "pump-'):
        file.forget(None, "pump-3")
    with pytest.raises(ConnectorError, match='there is no step "WINDOWS"; did you mean "WINDOW"'):
        file.forget("WINDOWS", None)
    assert (totals.positions[0]["position"], totals.positions[0]["keys"]) == (7, 3)
    assert file.forget(None, None) == 3
    store.open()
    assert (store.load(SCOPE).position, store.load(SCOPE).items) == (None, {})


def test_a_step_that_has_saved_nothing_yet_is_forgotten_too(store: FileStore) -> None:
    agreed(store, {"0:WINDOW": window()}, structlog.get_logger())
    store.close()
    assert FileContents(store.path).forget("WINDOW", None) == 0
    store.open()
    assert store.steps() == {}


WINDOWS = """
name: windows
source: {type: kafka, topics: [in], bootstrap: "127.0.0.1:1", group: g}
pipeline:
  - {"@type": WINDOW, by: device, size: 4, values: x, outputName: y}
sink: {type: memory, topic: out}
"""


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("WINDOW", "by: device, size: 4, values: x, outputName: y"),
        ("DEDUP", "by: device, for: 10s"),
        ("FUNCTION", "function: 'operator:add', remember: device"),
    ],
)
def test_a_service_that_does_not_say_where_state_is_kept_does_not_start(tmp_path: Path, kind: str, fields: str) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(WINDOWS.replace("WINDOW, by: device, size: 4, values: x, outputName: y", f"{kind}, {fields}"))
    with pytest.raises(
        DefinitionError, match=f"step 0:{kind} remembers earlier records, and nothing says where"
    ) as error:
        streamer.load(file).run()
    assert "state: {path: state.db}" in str(error.value)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{type: mqtt, topics: pumps}", 'source "mqtt": a source of type "mqtt" has no topics for state'),
        ("{type: kafka, topics: [fans, ^pumps]}", "match ^pumps may come at any time; name the topics one by one"),
        ("[{type: kafka, topics: a, name: a}, {type: kafka, topics: b, name: b}]", "there are 2; make each a service"),
    ],
)
def test_a_topic_for_the_state_of_other_sources_is_refused(source: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(
        f"name: a\nsource: {source}\nsink: {{type: kafka, topic: out}}\nstate: {{topic: pumps.state}}\npipeline: []\n"
    )
    with pytest.raises(DefinitionError) as error:
        streamer.load(file)
    assert text in str(error.value)
    assert "service.yaml:4" in str(error.value)


@pytest.mark.parametrize(("checkpoint", "state"), [("", "memory"), (", checkpoint: in.done", "{path: a.state}")])
def test_files_without_a_checkpoint_keep_no_state_in_a_file(checkpoint: str, state: str, tmp_path: Path) -> None:
    file = tmp_path / "service.yaml"
    source = f"source: {{type: file, path: in.jsonl, format: jsonl{checkpoint}}}\n"
    text = f"{source}sink: {{type: memory, topic: o}}\npipeline: []\n"
    file.write_text(f"{text}state: {state}\n")
    streamer.load(file)
    file.write_text(f"{text.replace(checkpoint, '')}state: {{path: a.state}}\n")
    with pytest.raises(DefinitionError, match=r'yaml:4: state: source "file": .* give the source a checkpoint: FILE'):
        streamer.load(file)


ONCE = "name: a\nsource: {type: kafka, topics: a}\nsink: {type: kafka, topic: out}\ndelivery: exactly_once\n"


def test_exactly_once_keeps_state_in_a_topic_and_in_no_file(tmp_path: Path) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(f"{ONCE}state: {{topic: pumps.state}}\npipeline: []\n")
    streamer.load(file)
    file.write_text(f"{ONCE}state: {{path: a.state}}\npipeline: []\n")
    with pytest.raises(DefinitionError, match=r"service\.yaml:5: state: a file cannot be part .* write {topic: NAME}"):
        streamer.load(file)


@pytest.mark.parametrize(
    ("lines", "interval"),
    [
        ("", 0.1),
        ("state: {topic: a.state}", 1.0),
        ("state: {topic: a.state, interval: 3s}", 3.0),
        ("state: {topic: a.state}\ntransaction: {interval: 50ms}", 0.05),
        ("state: {topic: a.state}\ntransaction: {timeout: 1s}", 0.5),
        ("state: memory", 0.1),
    ],
)
def test_transactions_save_state_as_often_as_it_says_unless_they_say_how_often(
    lines: str, interval: float, tmp_path: Path
) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(f"{ONCE}{lines}\npipeline: []\n")
    assert streamer.load(file).transactions.interval == interval


@pytest.mark.parametrize(
    ("state", "saving", "unsaved", "text"),
    [
        (None, ["0:WINDOW"], [], "step 0:WINDOW remembers earlier records, .* Write state: {topic: NAME}"),
        ("memory", ["0:WINDOW"], [], "step 0:WINDOW .* in memory it would not go back when"),
        ({"topic": "a.state"}, ["0:WINDOW"], ["1:TRACK"], "step 1:TRACK .* use at_least_once"),
    ],
)
def test_exactly_once_is_refused_where_state_is_not_in_its_transactions(
    state: Any, saving: list[str], unsaved: list[str], text: str, tmp_path: Path
) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(f"{ONCE}pipeline: []\n")
    service = streamer.load(file)
    check_transactions(service, [], [])
    with_state = service.model_copy(update={"state": StateTopicSettings(**state) if isinstance(state, dict) else state})
    with pytest.raises(DefinitionError, match=rf"service\.yaml:4: delivery: exactly_once: {text}"):
        check_transactions(with_state, saving, unsaved)
    check_transactions(service.model_copy(update={"delivery": "at_least_once"}), saving, unsaved)


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ("state: {topic: pumps.state, path: a.state}", "a file and a topic are two places"),
        ("state: {topic: pumps.state, delivery: fast}", "delivery: "),
        ("state: {topic: 'pumps state'}", "should match pattern"),
        ("state: disk", '"disk" is no place for state'),
        ("state: {path: a.state}\ndelivery: at_most_once", "at_most_once commits these in another way"),
        ("state: {path: a.state, interval: 0s}", "greater than 0"),
    ],
)
def test_a_place_that_is_none_is_refused_with_its_line(lines: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(WINDOWS + lines)
    with pytest.raises(DefinitionError) as error:
        streamer.load(file)
    assert text in str(error.value)
    assert "service.yaml:7" in str(error.value)


@pytest.mark.parametrize("assignor", ["consumer", "roundrobin", "cooperative-sticky"])
def test_topics_are_joined_only_where_their_partitions_stay_together(assignor: str, tmp_path: Path) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(
        f"""name: parts
source: {{type: kafka, topics: [a, b], assignor: {assignor}}}
pipeline: [{{"@type": JOIN, by: part, topics: {{left: a, right: b}}, within: 5s}}]
sink: {{type: kafka, topic: c}}
state: memory
"""
    )
    service = streamer.load(file)
    with pytest.raises(DefinitionError, match=rf"service.yaml:2: source kafka: assignor: {assignor} .*use range.*a, b"):
        check_topics(service, {"0:JOIN": Join(by=("part",), topics={"left": "a", "right": "b"}, within=5)})
