"""The batchers that a service can choose, one of a plug-in among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import streamer
from pipelines.errors import DefinitionError
from pipelines.plugins.catalog import Catalog, class_of
from streamer.batching import registry
from streamer.batching.batcher import Batcher, HardBatcher, SoftBatcher
from streamer.batching.rounds import RoundBatcher
from streamer.definition import plugins, schema
from streamer.testing import run

PLUGIN = '''
from typing import Literal

from connectors.units import Duration
from streamer.batching.batcher import Batcher
from streamer.definition.settings import BatcherSettings


class QuietSettings(BatcherSettings):
    """A batch is closed when no record has come for a while."""

    type: Literal["quiet"] = "quiet"
    """Which batcher this is."""
    quiet: Duration = 0.05
    """For how long no record has come."""


class QuietBatcher(Batcher):
    settings = QuietSettings

    @classmethod
    def of(cls, settings):
        made = cls(settings.max_records, settings.max_bytes)
        made.quiet = settings.quiet
        return made

    def full(self):
        return "records" if self.count >= self.max_records else None

    def deadline(self):
        return self.last_arrival + self.quiet
'''
SERVICE = """
source: {type: memory, topic: in}
pipeline: [{"@type": LOGGING}]
sink: {type: memory, topic: out}
batch: {type: quiet, max_records: 3, quiet: 10ms}
"""


@pytest.fixture
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution with the batcher `quiet`, and one that is broken, is installed."""
    (tmp_path / "plugin_quiet.py").write_text(PLUGIN)
    info = tmp_path / "streamer_quiet-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: streamer-quiet\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[streamer.batchers]\nquiet = plugin_quiet:QuietBatcher\nodd = plugin_quiet:QuietSettings\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    ours = registry.BATCHERS
    catalog = Catalog(
        ours.kind, ours.group, class_of(Batcher), lambda batcher: tuple(filter(None, [batcher.type_name])),
        "streamer.batching", by_entry=True,
    )  # fmt: skip
    monkeypatch.setattr(registry, "BATCHERS", catalog)
    monkeypatch.setattr(schema, "BATCHERS", catalog)
    monkeypatch.setattr(plugins, "BY_ENTRY", [catalog])


def load(folder: Path, **batch: Any) -> streamer.Service:
    (folder / "s.yaml").write_text(yaml.safe_dump({**yaml.safe_load(SERVICE), "batch": batch}))
    return streamer.load(folder / "s.yaml")


def test_ours_are_found_by_their_names() -> None:
    found = registry.BATCHERS.load_all()
    assert found == {"hard": HardBatcher, "round": RoundBatcher, "soft": SoftBatcher}


@pytest.mark.usefixtures("quiet")
def test_a_plug_in_adds_a_batcher_with_fields_of_its_own(tmp_path: Path) -> None:
    service = load(tmp_path, type="quiet", max_records=3, quiet="10ms")
    batcher = registry.built(service.batch)
    assert type(batcher).__name__ == "QuietBatcher"
    assert batcher.quiet == 0.01  # type: ignore[attr-defined]
    assert len(run(service, [{"x": number} for number in range(7)]).results) == 7


@pytest.mark.usefixtures("quiet")
def test_its_fields_are_checked_and_are_in_the_schema(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r's\.yaml:3: batch\.queit: no such field; did you mean "quiet"\?'):
        load(tmp_path, type="quiet", max_records=3, queit="10ms")
    validator = jsonschema.Draft202012Validator(schema.service_schema())
    given = yaml.safe_load(SERVICE)
    assert validator.is_valid(given)
    wrong = {**given, "batch": {"type": "quiet", "queit": "10ms"}}
    assert "queit" in jsonschema.exceptions.best_match(validator.iter_errors(wrong)).message
    assert not validator.is_valid({**given, "batch": {"quiet": "10ms"}}), "that is a field of another type"


@pytest.mark.usefixtures("quiet")
def test_a_broken_plug_in_is_listed_and_harms_no_other(tmp_path: Path) -> None:
    assert {plugin.name for plugin in plugins.listed() if plugin.group == "streamer.batchers"} == {"quiet", "odd"}
    assert any('batcher "odd" cannot be loaded' in problem for problem in plugins.problems())
    with pytest.raises(DefinitionError, match=r's\.yaml:2: batch\.type: batcher "odd" cannot be loaded'):
        load(tmp_path, type="odd")


def test_a_type_that_there_is_not_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match=r'there is no batcher of type "hrad"; did you mean "hard"\?'):
        load(tmp_path, type="hrad")
    (tmp_path / "s.yaml").write_text(SERVICE.replace("{type: quiet, max_records: 3, quiet: 10ms}", "512"))
    with pytest.raises(DefinitionError, match="batch: must be a mapping"):
        streamer.load(tmp_path / "s.yaml")
