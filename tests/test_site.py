"""The documentation site: every link leads somewhere, it needs no other host, and pages look as in the repository."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from urllib.parse import unquote, urlsplit

import markdown
import pytest
from drawn.browser import browser, chromium
from drawn.browser import page as opened_page
from linkedpages import DOCS, ROOT, outside
from markdown_it import MarkdownIt
from mkdocs.config import load_config
from sitenav import expanded

OUTSIDE = [
    *ROOT.glob("*.md"),
    *ROOT.glob("benchmarks/*.md"),
    *(page for folder in ("deploy", "examples") for page in ROOT.glob(f"{folder}/**/*.md")),
]
"""Pages of the site that are not in docs/."""

SOURCES = sorted([*DOCS.rglob("*.md"), *OUTSIDE])
"""The pages of the site as they are in the repository."""

LOADED = {"script": "src", "img": "src", "source": "src", "iframe": "src", "video": "src", "audio": "src"}
"""Elements whose attribute names a file that a browser loads without being asked."""

PHONED = (
    "index.html",
    "service-file.html",
    "steps/track.html",
    "connectors/kafka.html",
    "delivery.html",
    "api/data.html",
)


@dataclass
class Html(HTMLParser):
    """A page of the site: what it links to, what it loads, and its anchors."""

    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and "href" in given and given.get("rel") != "canonical":
            self.loads.append(given["href"])
        elif tag in LOADED and LOADED[tag] in given:
            self.loads.append(given[LOADED[tag]])


@dataclass
class Outline(HTMLParser):
    """The blocks of a page in their order, with how deep in lists they stand."""

    blocks: list[tuple[str, int]] = field(default_factory=list)
    depth: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.depth += tag in ("ul", "ol")
        if tag in ("li", "pre", "table", "blockquote") or re.fullmatch(r"h[1-6]", tag):
            self.blocks.append((tag, self.depth))

    def handle_endtag(self, tag: str) -> None:
        self.depth -= tag in ("ul", "ol")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> Mapping[Path, Html]:
    """The pages of the site, read."""
    read = {}
    for file in site.rglob("*.html"):
        read[file] = Html()
        read[file].feed(file.read_text(encoding="utf-8"))
    assert len(read) > len(SOURCES) * 0.9
    return read


@pytest.mark.slow
@pytest.mark.parametrize(
    "package", ["pipelines", "streamer", "streamer.testing", "streamer.faust", "connectors.contract"]
)
def test_a_name_that_users_import_is_in_the_api_reference(package: str, pages: Mapping[Path, Html], site: Path) -> None:
    anchors = {anchor for page, read in pages.items() if page.parent == site / "api" for anchor in read.anchors}
    names = import_module(package).__all__
    assert len(names) > 1
    assert [name for name in names if f"{package}.{name}" not in anchors] == []


@pytest.mark.slow
def test_the_api_reference_shows_types_arguments_results_and_errors(site: Path) -> None:
    text = " ".join(
        re.sub(r"<[^>]+>|\xb6", "", (site / "api" / f"{page}.html").read_text(encoding="utf-8")).replace("&#39;", "'")
        for page in ("streamer", "pipelines", "steps", "connectors")
    )
    assert {"Parameters:", "Returns:", "Raises:"} <= set(text.split())
    assert "hot_path: Literal['auto', 'python', 'native']" in text
    assert "max_batch: int | None" in text, "types are shown without what checks them"
    assert ":::" not in text


@pytest.mark.slow
def test_no_page_scrolls_sideways_on_a_phone_and_none_asks_another_host(site: Path) -> None:
    """Tables and code that are too wide scroll by themselves."""
    if chromium() is None:
        missing = "chromium is not on the PATH: `make programs` installs it where apt-get can"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(missing)
    requests: list[str] = []
    with browser() as opened, opened_page(opened, 390, 844) as phone:
        phone.on("request", lambda request: requests.append(request.url))
        for name in PHONED:
            phone.goto((site / name).as_uri())
            assert phone.evaluate("document.documentElement.scrollWidth") <= 390, name
    assert len(requests) > len(PHONED)
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []


@pytest.mark.slow
def test_the_search_knows_every_part_of_the_site(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    places = {entry["location"] for entry in index["docs"]}
    assert {
        "steps/onnx.html",
        "service-file/sink.html",
        "examples/digits/index.html",
        "api/data.html#pipelines.Batch",
    } <= {*places}


def _elsewhere(link: str) -> bool:
    return bool(urlsplit(link).scheme or urlsplit(link).netloc)


def _target(page: Path, link: str) -> Path:
    return Path(os.path.normpath(page.parent / unquote(urlsplit(link).path))) if urlsplit(link).path else page


def _broken(pages: Mapping[Path, Html], site: Path) -> Iterator[str]:
    for page, read in pages.items():
        if page.name == "404.html":  # its links begin at the site's root, wherever it is shown
            continue
        for link in [*read.links, *read.loads]:
            if _elsewhere(link):
                continue
            target = _target(page, link)
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(urlsplit(link).fragment)
            where = f"{page.relative_to(site)}: {link}"
            if not target.is_file():
                yield f"{where}: no such file"
            elif anchor and not anchor.startswith("__") and target in pages and anchor not in pages[target].anchors:
                yield f"{where}: no such heading"


@pytest.mark.slow
def test_no_link_of_the_site_leads_nowhere(pages: Mapping[Path, Html], site: Path) -> None:
    assert list(_broken(pages, site)) == []


@pytest.mark.slow
def test_the_site_loads_nothing_from_other_hosts(pages: Mapping[Path, Html], site: Path) -> None:
    assert [f"{page.name}: {url}" for page, read in pages.items() for url in read.loads if _elsewhere(url)] == []
    styles = {file.name: file.read_text(encoding="utf-8") for file in site.rglob("*.css")}
    assert [name for name, text in styles.items() if re.search(r"(?:url\(|@import)\W*(?:https?:)?//", text)] == []
    inline = [re.findall(r"<style.*?</style>", page.read_text(encoding="utf-8"), re.DOTALL) for page in pages]
    assert not re.search(r"(?:url\(|@import)\W*(?:https?:)?//", str(inline))


@pytest.mark.slow
def test_readmes_outside_of_the_docs_are_pages(site: Path) -> None:
    assert {file for file in outside([*DOCS.rglob("*.md")]).values() if file.suffix == ".md"} == {*OUTSIDE}
    for path in ("overview.html", "examples/digits/index.html", "benchmarks/index.html", "SECURITY.html"):
        assert (site / path).is_file(), path
    text = (site / "connectors" / "memory.html").read_text(encoding="utf-8")
    assert 'href="../overview.html#test-a-service-without-a-broker"' in text


@pytest.mark.slow
def test_a_link_to_a_source_is_its_text_as_there_is_no_repository_to_show_it(site: Path) -> None:
    text = (site / "data.html").read_text(encoding="utf-8")
    assert "data.proto" in text
    assert not re.search(r'href="[^"]*data\.proto', text)


@pytest.mark.parametrize("page", SOURCES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_has_the_same_blocks_as_in_the_repository(page: Path) -> None:
    """The site's Markdown wants blocks inside of lists to be indented by four spaces, else they end the list."""
    extensions = ["tables", "attr_list", "pymdownx.superfences"]
    text = page.read_text(encoding="utf-8")
    here, there = Outline(), Outline()
    here.feed(MarkdownIt("commonmark").enable("table").render(text))
    there.feed(markdown.markdown(text, extensions=extensions))
    assert there.blocks == here.blocks


def test_the_navigation_names_folders_with_tables_that_list_their_pages() -> None:
    nav = load_config(str(ROOT / "mkdocs.yml"))["nav"]
    steps = [
        entry for section in expanded(nav) for entries in section.values() for entry in entries if "Steps" in entry
    ]
    assert {"Models", "Images"} <= {title for entry in steps[0]["Steps"][1:] for title in entry}
