"""The hot path of a service: its setting is handed to connectors and codecs, and each reports which one it takes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

import pipelines
import streamer
from connectors.kafka.config import KafkaSinkConfig, KafkaSourceConfig
from connectors.memory.config import MemorySinkConfig, MemorySourceConfig
from pipelines import hotpath
from pipelines.errors import DefinitionError
from streamer import testing
from streamer.agent.agent import Agent
from streamer.agent.assembly import build
from streamer.definition.hotpaths import PartHotPath, in_words
from streamer.definition.service import Service

ROOT = Path(__file__).parents[3]
built = pytest.mark.skipif(hotpath.why_not() is not None, reason=f"the compiled hot path: {hotpath.why_not()}")


@pytest.fixture(autouse=True)
def no_choice_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The suite may run with STREAMER_NATIVE."""
    monkeypatch.delenv(hotpath.VARIABLE, raising=False)


@pytest.fixture
def not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine without a Rust toolchain."""
    monkeypatch.setattr(hotpath, "_extension", lambda: "it was not built")


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """A copy of the example that insists on the compiled hot path."""
    file = Path(shutil.copytree(ROOT / "examples" / "digits", tmp_path / "digits")) / "digits.yaml"
    file.write_text(file.read_text().replace("name: digits\n", "name: digits\nhot_path: native\n"))
    return file


def service(**fields: Any) -> Service:
    given: dict[str, Any] = {
        "name": "digits",
        "source": MemorySourceConfig(topic="in"),
        "pipeline": pipelines.Sequence([pipelines.Logging()]),
        "sink": MemorySinkConfig(topic="out"),
    }
    return Service(**{**given, **fields})


def test_connectors_and_codecs_take_the_hot_path_of_the_service() -> None:
    made = service(
        hot_path="python",
        source=KafkaSourceConfig(topics=("in",), group="g", codec={"type": "protodata", "max_depth": 3}),
        sink=[KafkaSinkConfig(topic="out"), KafkaSinkConfig(topic="out2", codec="konduit-json")],
        dead_letter=KafkaSinkConfig(topic="dead"),
    )
    reports = {part: (path, reason) for part, (path, reason) in build(made).hot_paths()}
    assert reports.pop("sink kafka-1 codec") == ("python", "it has no compiled form")
    assert set(reports.values()) == {("python", "hot_path: python")}
    assert len(reports) == 6


def test_another_word_is_an_error_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("hot_path: rust\nsource: {type: memory, topic: in}\nsink: {type: memory, topic: out}\npipeline: []")
    with pytest.raises(DefinitionError, match=r"wrong\.yaml:1.*hot_path.*'auto', 'python' or 'native'"):
        streamer.load(file)


@pytest.mark.parametrize("part", ["source: {type: kafka, topics: in, group: g", "sink: {type: kafka, topic: out"])
def test_it_is_chosen_for_the_whole_service_and_not_for_its_parts(tmp_path: Path, part: str) -> None:
    file = tmp_path / "wrong.yaml"
    other = "sink: {type: memory, topic: out}" if part.startswith("source") else "source: {type: memory, topic: in}"
    file.write_text(f"{part}, hot_path: python}}\n{other}\npipeline: []")
    with pytest.raises(DefinitionError, match=r"wrong\.yaml:1: (source|sink)\.hot_path: no such field"):
        streamer.load(file)


def test_every_part_reports_what_it_takes_and_why_it_is_plain_python() -> None:
    made = service(hot_path="python", dead_letter=MemorySinkConfig(topic="dead"))
    assert build(made).hot_paths() == [
        ("source memory", ("python", "it has no compiled form")),
        ("source memory codec", ("python", "hot_path: python")),
        ("sink memory", ("python", "it has no compiled form")),
        ("sink memory codec", ("python", "hot_path: python")),
        ("sink dead_letter", ("python", "it has no compiled form")),
    ]


@built
def test_a_compiled_hot_path_that_was_built_is_taken_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    def codec() -> PartHotPath:
        return build(service()).hot_paths()[1]

    assert codec().report == ("native", "")
    monkeypatch.setenv(hotpath.VARIABLE, "python")
    assert codec().report == ("python", "STREAMER_NATIVE=python")


def test_a_compiled_hot_path_that_was_not_built_is_reported_with_the_reason(not_built: None) -> None:
    assert build(service()).hot_paths()[1].report == ("python", "it was not built")


def test_a_service_that_insists_on_a_hot_path_that_was_not_built_does_not_start(not_built: None) -> None:
    with pytest.raises(hotpath.HotPathError, match="was not built"):
        testing.run(service(hot_path="native"), [])


def test_one_line_says_which_part_uses_which_hot_path() -> None:
    native, plain = hotpath.HotPathReport("native"), hotpath.HotPathReport("python", "why")
    assert in_words([PartHotPath("a", native), PartHotPath("b", native)]) == "native"
    mixed = [PartHotPath("a", native), PartHotPath("b", plain), PartHotPath("c", plain)]
    assert in_words(mixed) == "native: a; python: b, c (why)"
    assert in_words([PartHotPath("b", plain), PartHotPath("c", plain)]) == "python (why)"


@pytest.mark.slow
def test_check_tells_which_hot_path_a_service_takes(cli: Any, digits: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The environment goes before the file.
    monkeypatch.setenv(hotpath.VARIABLE, "python")
    ended = cli("check", digits)
    assert ended.code == 0, ended.err
    assert "hot path" in ended.out
    (report,) = json.loads(cli("check", digits, "--json").out)["services"]
    (found,) = (one for one in report["findings"] if one["part"] == "hot path")
    assert found["ok"]
    assert found["text"] == "python (STREAMER_NATIVE=python)"


def test_check_finds_out_that_the_hot_path_insisted_on_was_not_built(cli: Any, digits: Path, not_built: None) -> None:
    ended = cli("check", digits, "--json")
    assert ended.code == 2
    (report,) = json.loads(ended.out)["services"]
    (found,) = (one for one in report["findings"] if one["part"] == "hot path")
    assert not found["ok"]
    assert "cannot be used: it was not built" in found["text"]


def test_the_choice_is_in_the_log_and_in_the_metrics(caplog: pytest.LogCaptureFixture) -> None:
    agent = Agent(service(hot_path="python", source=MemorySourceConfig(topic="hotpaths"), control=None))
    registry = CollectorRegistry()
    registry.register(agent.meters)
    caplog.set_level("INFO", "streamer")
    agent.start()
    try:
        value = registry.get_sample_value(
            "streamer_hot_path_info",
            {"service": "digits", "part": "sink memory codec", "path": "python", "reason": "hot_path: python"},
        )
    finally:
        agent.stop()
        agent.join(60.0)
    assert value == 1
    with_reasons = [line for line in caplog.messages if line.startswith("hot path ")]
    assert len(with_reasons) == 2
    assert "path='python' parts='source memory codec, sink memory codec' reason='hot_path: python'" in with_reasons[1]


def test_a_hot_path_that_was_not_built_is_explained_in_the_log_once_and_short_in_the_check(
    caplog: pytest.LogCaptureFixture, not_built: None
) -> None:
    made = service(
        source=MemorySourceConfig(topic="unbuilt"), sink=[MemorySinkConfig(topic="a"), MemorySinkConfig(topic="b")]
    )
    caplog.set_level("INFO", "streamer")
    agent = Agent(made)
    agent.start()
    agent.stop()
    agent.join(60.0)
    explained = [line for line in caplog.messages if "it was not built" in line]
    assert len(explained) == 1
    assert "without a Rust toolchain (cargo) on the PATH, or with STREAMER_NATIVE=python" in explained[0]
    assert explained[0].count(" codec") == 3
    assert in_words(build(made).hot_paths()).endswith(" codec (it was not built)")
