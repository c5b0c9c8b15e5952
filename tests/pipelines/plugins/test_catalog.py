"""A built-in part is added by its module alone, and is imported only when it is looked for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import connectors
import pipelines.steps
from connectors.config import SourceConfig
from pipelines import Registry
from pipelines.plugins.catalog import Catalog, class_of, types_of

SOURCE = """
from typing import Literal
from connectors.config import SourceConfig

class AddedSourceConfig(SourceConfig):
    type: Literal["added"] = "added"
    def build(self): ...
"""
STEP = """
from typing import ClassVar
from pipelines.steps.base import RunBy, Step

class Added(Step):
    type_name: ClassVar[str] = "ADDED"
    run_by: ClassVar[RunBy | None] = RunBy("numpy", "added.runner:AddedRunner")
"""


def add(package: Path, name: str, text: str) -> None:
    """A module in a folder of a package."""
    (package / "added").mkdir(parents=True)
    (package / "added" / "__init__.py").touch()
    (package / "added" / f"{name}.py").write_text(text)


def test_a_source_is_added_by_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(tmp_path, "config", SOURCE)
    monkeypatch.setattr(connectors, "__path__", [*connectors.__path__, str(tmp_path)])
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
    for module in ("connectors.added.config", "connectors.added"):
        monkeypatch.delitem(sys.modules, module)


def test_a_step_is_added_by_its_module_and_names_its_runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(tmp_path, "added", STEP)
    monkeypatch.setattr(pipelines.steps, "__path__", [*pipelines.steps.__path__, str(tmp_path)])
    (line,) = [line for line in Registry(plugins=False).listing() if line.step_type == "ADDED"]
    assert (line.runner, line.origin) == ("numpy", "streamer")
    for module in ("pipelines.steps.added.added", "pipelines.steps.added"):
        monkeypatch.delitem(sys.modules, module)
