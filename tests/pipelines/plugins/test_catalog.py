"""A built-in part is added by its module alone, and is imported only when it is looked for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

import connectors
import connectors.codecs
import pipelines.steps
from connectors.codecs.config import CodecConfig
from connectors.config import SourceConfig
from pipelines import Registry
from pipelines.plugins.catalog import Catalog, class_of, types_of
from pipelines.plugins.modelfiles import fetchers, is_here

SOURCE = """
from typing import ClassVar, Literal
from connectors.config import SourceConfig

class AddedSourceConfig(SourceConfig):
    built_by: ClassVar[str] = "connectors.memory.source:MemorySource.of"
    type: Literal["added"] = "added"
"""
CODEC = """
from typing import ClassVar, Literal
from connectors.codecs.config import CodecConfig
from connectors.codecs.objects import Objects

class AddedConfig(CodecConfig):
    built_by: ClassVar[str] = "connectors.codecs.added.added:Added"
    type: Literal["added"] = "added"

class Added(Objects):
    pass
"""
FETCHER = """
from pathlib import Path

class AddedFetcher:
    schemes = ("added",)

    def cached(self, uri):
        return Path(uri)

    fetch = cached

fetcher = AddedFetcher()
"""
STEP = """
from typing import ClassVar
from pipelines.steps.base import RunBy, Step

class Added(Step):
    type_name: ClassVar[str] = "ADDED"
    run_by: ClassVar[RunBy | None] = RunBy("numpy", "added.runner:AddedRunner")
"""
Add = Callable[[ModuleType, str, str], None]


def write(folder: Path, name: str, text: str) -> str:
    """Write a module into the folder `added` of a folder that a package is to have besides its own."""
    (folder / "added").mkdir(parents=True)
    (folder / "added" / "__init__.py").touch()
    (folder / "added" / f"{name}.py").write_text(text)
    return str(folder)


@pytest.fixture
def add(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Add]:
    """`add(package, name, text)` adds the module `added.NAME` to a package, until the test ends."""

    def added(package: ModuleType, name: str, text: str) -> None:
        monkeypatch.setattr(package, "__path__", [*package.__path__, write(tmp_path, name, text)])

    yield added
    for module in [module for module in sys.modules if ".added" in module]:
        del sys.modules[module]


def test_a_source_is_added_by_its_module(add: Add) -> None:
    add(connectors, "config", SOURCE)
    catalog: Catalog[type[SourceConfig]] = Catalog(
        "source",
        "streamer.sources",
        class_of(SourceConfig),
        types_of,
        "connectors",
        lambda name: name.endswith("config"),
    )
    assert catalog.get("added").__name__ == "AddedSourceConfig"
    assert catalog.known["added"].distribution == "streamer"


def test_a_codec_is_added_by_its_module_and_names_what_it_builds(add: Add) -> None:
    add(connectors.codecs, "added", CODEC)
    catalog: Catalog[type[CodecConfig]] = Catalog(
        "codec", "streamer.codecs", class_of(CodecConfig), types_of, "connectors.codecs", by_entry=True
    )
    assert type(catalog.get("added")().build()).__name__ == "Added"  # type: ignore[call-arg]


def test_a_fetcher_of_models_is_added_by_its_module(add: Add) -> None:
    add(connectors, "download", FETCHER)
    fetchers.cache_clear()
    try:
        assert set(fetchers().known) == {"added", "http", "https", "s3", "gs", "az", "hf"}
        assert is_here("added://model.onnx")
    finally:
        fetchers.cache_clear()


def test_a_step_is_added_by_its_module_and_names_its_runner(add: Add) -> None:
    add(pipelines.steps, "added", STEP)
    (line,) = [line for line in Registry(plugins=False).listing() if line.step_type == "ADDED"]
    assert (line.runner, line.origin) == ("numpy", "streamer")


@pytest.mark.slow
def test_the_schema_and_the_list_of_steps_show_what_was_added(tmp_path: Path) -> None:
    places = {
        "connectors": write(tmp_path / "source", "config", SOURCE),
        "connectors.codecs": write(tmp_path / "codec", "added", CODEC),
        "pipelines.steps": write(tmp_path / "step", "added", STEP),
    }
    adding = "".join(f"import {package}; {package}.__path__.append({place!r})\n" for package, place in places.items())

    def printed(*words: str) -> str:
        command = f"from streamer.cli.app import invoke; invoke({[*words]})"
        return subprocess.run(
            [sys.executable, "-c", adding + command], check=True, capture_output=True, text=True, timeout=120
        ).stdout

    parts = json.loads(printed("schema"))["$defs"]
    assert {"source-added", "codec-added"} <= set(parts)
    assert "added" in parts["source-added"]["properties"]["codec"]["anyOf"][0]["enum"]
    assert "ADDED" in printed("steps")
