"""Files outside of docs/ that pages link to: Markdown and pictures become part of the site, sources a link or text.

Pages are written to be read in the repository, where `../examples/digits/README.md` is a good link. The site is made of
docs/ alone, so each Markdown file that can be reached by links gets a page whose path is that in the repository, and
links are turned to it while a page is rendered.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit
from xml.etree.ElementTree import Element

import markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor

ROOT: Final = Path(__file__).parent.parent
DOCS: Final = Path(__file__).parent
RENAMED: Final[Mapping[str, str]] = {"README.md": "overview.md"}
"""Paths of pages by those in the repository, where the two differ: the name of the front page is docs/README.md's."""

_PICTURES: Final = {".svg", ".png", ".jpg", ".jpeg", ".gif", ".webp"}


def site_path(file: Path) -> str:
    """Path of a file of the repository in the site's sources: `steps/onnx.md`, `examples/digits/README.md`."""
    if file.is_relative_to(DOCS):
        return file.relative_to(DOCS).as_posix()
    path = file.relative_to(ROOT).as_posix()
    return RENAMED.get(path, path)


def outside(pages: Sequence[Path], named: Sequence[Path] = ()) -> dict[str, Path]:
    """The Markdown files and pictures outside of docs/ that can be reached from pages, by their paths in the site.

    Args:
        pages: The pages in docs/.
        named: Files that belong to the site whether or not something links to them.
    """
    reached = {site_path(file): file for file in named if file.is_file()}
    todo = [*pages, *reached.values()]
    while todo:
        for target in _targets(todo.pop()):
            if _is_part(target) and not target.is_relative_to(DOCS) and site_path(target) not in reached:
                reached[site_path(target)] = target
                if target.suffix == ".md":
                    todo.append(target)
    return reached


@cache
def title_of(page: Path) -> str:
    """The heading of a page, without marks of Markdown; its name if it has none."""
    found = re.search(r"^# (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1].replace("`", "") if found else page.name


class Relinked(Extension):
    """Turns the links of a page to other files of the repository into links of the site.

    Where the text of a link is a file's name, `data.md`, it becomes the title of that page.

    Attributes:
        file: The file of the page that is rendered.
        sources: Where sources can be read, `https://HOST/PROJECT/blob/main`; empty if nowhere: then a link to one is
            its text.
    """

    def __init__(self, sources: str = "") -> None:
        super().__init__()
        self.file = DOCS / "README.md"
        self.sources = sources

    def extendMarkdown(self, md: markdown.Markdown) -> None:  # noqa: N802 - the name is Python-Markdown's
        """Put it before MkDocs' own treatment of links, which has the priority 0."""
        md.treeprocessors.register(_Links(self, md), "relinked", 5)


class _Links(Treeprocessor):
    def __init__(self, page: Relinked, md: markdown.Markdown) -> None:
        super().__init__(md)
        self._page = page

    def run(self, root: Element) -> None:
        for element in root.iter():
            key = {"a": "href", "img": "src"}.get(element.tag, "")
            link = element.get(key) if key else None
            target = _target(self._page.file, link) if link else None
            if link is not None and target is not None:
                self._turn(element, key, target, urlsplit(link).fragment)

    def _turn(self, element: Element, key: str, target: Path, fragment: str) -> None:
        if (element.text or "").endswith(".md") and target.suffix == ".md":
            element.text = title_of(target)
        if _is_part(target):
            here = Path(site_path(self._page.file)).parent
            there = os.path.relpath(site_path(target), here)
            element.set(key, f"{there}#{fragment}" if fragment else there)
        elif self._page.sources:
            element.set(key, f"{self._page.sources}/{target.relative_to(ROOT).as_posix()}")
        else:
            element.tag = "span"
            element.attrib.clear()


def _is_part(target: Path) -> bool:
    """Whether the site has this file: all Markdown and pictures of the repository, as far as something links to it."""
    return target.is_file() and (target.suffix == ".md" or target.suffix in _PICTURES)


def _target(page: Path, link: str) -> Path | None:
    """The file or folder of the repository that a link names; None for other sites and for anchors of the page."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc or not parts.path:
        return None
    target = Path(os.path.normpath(page.parent / parts.path))
    return target if target.exists() and target.is_relative_to(ROOT) else None


def _targets(page: Path) -> Iterator[Path]:
    collected = _Collected()
    renderer = markdown.Markdown(extensions=["tables", "fenced_code"])
    renderer.treeprocessors.register(collected, "collected", 5)
    renderer.convert(page.read_text(encoding="utf-8"))
    for link in collected.links:
        target = _target(page, link)
        if target is not None:
            yield target


class _Collected(Treeprocessor):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def run(self, root: Element) -> None:
        self.links += [link for element in root.iter() for link in (element.get("href"), element.get("src")) if link]
