"""Connectors by name: ours, and those of other distributions."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from connectors.config import SourceConfig
from connectors.file import FileSourceConfig
from connectors.memory import MemorySinkConfig, MemorySource, MemorySourceConfig
from connectors.registry import SINKS, SOURCES
from pipelines.errors import DefinitionError, MissingPackageError
from pipelines.plugins.catalog import Catalog, NameClash, class_of, types_of

PLUGIN = """
from typing import Literal
from connectors.config import SourceConfig
from connectors.memory import MemorySource
from pipelines.errors import MissingPackageError

class PulsarSourceConfig(SourceConfig):
    type: Literal["pulsar"] = "pulsar"
    def build(self) -> MemorySource:
        return MemorySource(name=self.label)

def needs_a_package():
    raise MissingPackageError("pulsar-client", "pulsar", "a pulsar source")
"""


def install(folder: Path, distribution: str, entries: dict[str, str], module: str = "", text: str = PLUGIN) -> None:
    """The metadata that installing a wheel leaves behind."""
    folder.mkdir(exist_ok=True)
    if module:
        (folder / f"{module}.py").write_text(text)
    info = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    lines = [f"{name} = {target}" for name, target in entries.items()]
    (info / "entry_points.txt").write_text("\n".join(["[streamer.sources]", *lines, ""]))


def fresh() -> Catalog[Any]:
    """A registry of the distributions that are installed now."""
    ours = ("connectors.memory.config", "connectors.file.config")
    return Catalog(
        "source", SOURCES.group, class_of(SourceConfig), types_of, "connectors", ours.__contains__, by_entry=True
    )


def test_our_connectors_are_known_without_importing_them() -> None:
    assert {"kafka", "file", "memory"} <= set(SOURCES.known)
    assert {"kafka", "file", "memory"} <= set(SINKS.known)
    assert SOURCES.get("file") is FileSourceConfig
    assert SINKS.get("memory") is MemorySinkConfig


def test_an_unknown_type_is_an_error_with_the_nearest_name() -> None:
    with pytest.raises(DefinitionError, match=r'no source of type "memroy"; did you mean "memory"\?; known are'):
        SOURCES.get("memroy")


def test_a_plugin_is_found_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "streamer-pulsar", {"pulsar": "plugin_pulsar:PulsarSourceConfig"}, "plugin_pulsar")
    monkeypatch.syspath_prepend(tmp_path)
    registry = fresh()
    assert registry.known["pulsar"].distribution == "streamer-pulsar"
    config = registry.get("pulsar").model_validate({"type": "pulsar", "into": {"headers.trace": "trace"}})
    assert isinstance(config.build(), MemorySource)
    assert set(registry.load_all()) == {"file", "memory", "pulsar"}


def test_a_broken_plugin_is_reported_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    entries = {
        "missing": "no_such_module_at_all:X",
        "typo": "plugin_broken:Nothing",
        "other": "plugin_broken:MemorySource",
        "raises": "plugin_raises:X",
    }
    install(tmp_path, "broken-plugin", entries, "plugin_broken")
    (tmp_path / "plugin_raises.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    registry = fresh()
    with caplog.at_level(logging.WARNING):
        assert set(registry.load_all()) == {"file", "memory"}
    for name in entries:
        assert f'source "{name}" cannot be loaded from {entries[name]} of broken-plugin' in caplog.text
    with pytest.raises(DefinitionError, match=r"ZeroDivisionError.*update or uninstall it"):
        registry.get("raises")
    with pytest.raises(DefinitionError, match="it is not a subclass of SourceConfig"):
        registry.get("other")
    assert registry.get("memory") is MemorySourceConfig


def test_a_plugin_that_misses_a_package_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = PLUGIN + "\nneeds_a_package()\n"
    install(tmp_path, "streamer-lacking", {"lacking": "plugin_lacking:PulsarSourceConfig"}, "plugin_lacking", text)
    monkeypatch.syspath_prepend(tmp_path)
    registry = fresh()
    with pytest.raises(MissingPackageError, match="pulsar-client"):
        registry.get("lacking")
    assert "lacking" not in registry.load_all()


@pytest.mark.parametrize("name", ["memory", "pulsar"])
def test_two_connectors_of_one_name_are_an_error_that_names_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    install(tmp_path / "a", "streamer-one", {name: "plugin_one:Config"})
    install(tmp_path / "b", "streamer-two", {name: "plugin_two:Config"})
    monkeypatch.syspath_prepend(tmp_path / "a")
    monkeypatch.syspath_prepend(tmp_path / "b")
    expected = {
        "memory": r"connectors.memory.config.MemorySourceConfig \(streamer\) and plugin_",
        "pulsar": r"plugin_(one:Config \(streamer-one\)|two:Config \(streamer-two\)) and plugin_",
    }
    with pytest.raises(NameClash, match=f"the source {name} exists twice: {expected[name]}"):
        fresh().get(name)


def test_fields_are_checked_frozen_and_described() -> None:
    config = MemorySourceConfig(topic="t", into={"key": "device", "headers.trace": "trace", "timestamp": "at"})
    assert (config.label, config.codec, config.tombstones) == ("memory", "protodata", "forward")
    assert MemorySourceConfig(topic="t", name="here").label == "here"
    with pytest.raises(ValidationError, match="frozen"):
        config.topic = "u"  # type: ignore[misc]
    with pytest.raises(ValidationError, match="Extra inputs"):
        MemorySourceConfig.model_validate({"type": "memory", "topic": "t", "topics": "t"})
    with pytest.raises(ValidationError, match='"headers" is not metadata of a record'):
        MemorySourceConfig(topic="t", into={"headers": "all"})
    with pytest.raises(ValidationError, match='did you mean "partition"'):
        MemorySourceConfig(topic="t", into={"partitions": "p"})
    for model in (MemorySourceConfig, FileSourceConfig, MemorySinkConfig):
        fields = model.model_json_schema()["properties"]
        assert all(field.get("description") for field in fields.values()), model
