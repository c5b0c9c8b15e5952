"""Each connector and codec has a page: its example runs, it says what is promised and which errors to expect."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import generate
import pytest
from connectorpages import HERE, Page, index, our_pages, pages_of
from pageblocks import blocks_of
from pydantic import BaseModel, ConfigDict

from connectors.codec import Codec
from connectors.codecs.config import CodecConfig
from connectors.config import SourceConfig
from connectors.source import Source

PAGES = our_pages()
NAMES = [f"{page.kind}.{page.name}" for page in PAGES]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_connector_or_codec_has_a_page_with_an_example_and_what_to_expect(page: Page) -> None:
    assert page.path.exists(), "python docs/generate.py writes one that is to be completed"
    text = page.path.read_text()
    assert text.startswith(f"# `{page.name}`\n")
    assert f"<!-- about: {page.kind}.{page.name} -->" in text
    for heading in re.findall("^## .*", page.bare(), re.MULTILINE):
        assert re.search(rf"^{heading}[^\n]*\n\n[^#\n]", text, re.MULTILINE), f"{heading}: nothing is said"
    examples = "".join(block.text for block in blocks_of(page.path) if block.language in ("yaml", "python"))
    assert page.name in examples or page.name == "objects", "the page has no example of it"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_the_example_gives_what_its_page_says(page: Page, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if page.name == "protobuf":
        pytest.skip("it needs a compiler: tests/test_docs.py runs it")
    monkeypatch.chdir(tmp_path)
    for block in blocks_of(page.path):
        if block.language == "python":
            exec(compile(block.text, str(block), "exec"), {})


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_what_is_generated_of_a_page_can_be_generated(page: Page) -> None:
    assert set(re.findall("<!-- ((?:about|fields): .*) -->", page.bare())) <= generate.regions().keys()


def test_there_are_no_pages_of_connectors_and_codecs_that_there_are_not() -> None:
    for kind in ("connector", "codec"):
        there = {path.stem for path in (HERE / f"{kind}s").glob("*.md")} - {"README"}
        assert there == {page.name for page in PAGES if page.kind == kind}


class Clock(BaseModel):
    """A mapping inside a configuration."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    every: float = 1.0
    """Seconds between two records."""


class TicksConfig(SourceConfig):
    """The time, now and then. It has no end."""

    type: Literal["ticks"] = "ticks"
    clock: Clock | None = None
    """When records come."""

    def build(self) -> Source:
        raise NotImplementedError


class YamlConfig(CodecConfig):
    """Documents of YAML. Anchors are refused."""

    type: Literal["yaml"] = "yaml"
    indent: int = 2
    """Blanks of a level."""

    def build(self) -> Codec:
        raise NotImplementedError


def test_a_new_connector_or_codec_gets_its_page_and_its_line_in_the_index_from_its_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    new = [*pages_of({"ticks": TicksConfig}, {}), Page("codec", "yaml", {"codec": YamlConfig})]
    monkeypatch.setattr(generate, "our_pages", lambda: [*PAGES, *new])
    made = generate.missing_pages()
    assert [path.relative_to(HERE).as_posix() for path in made] == ["connectors/ticks.md", "codecs/yaml.md"]
    texts = []
    for path, text in made.items():
        bare = tmp_path / path.name
        bare.write_text(text)
        texts.append(generate.refreshed(bare))
    ticks, yaml = texts
    assert "**Source.** The time, now and then. It has no end." in ticks
    assert "| `clock` | mapping |  | When records come. |" in ticks
    assert "| `every` | number | `1.0` | Seconds between two records. |" in ticks
    assert "Documents of YAML. Anchors are refused." in yaml
    assert "| `indent` | integer | `2` | Blanks of a level. |" in yaml
    assert "| [`ticks`](ticks.md) | The time, now and then. |  |  |\n" in index(new, "connector")
    assert "| [`yaml`](yaml.md) | Documents of YAML. |  |\n" in index(new, "codec")
