"""What MkDocs calls while it builds the site (`hooks` of mkdocs.yml)."""

from __future__ import annotations

import re
from pathlib import Path

from linkedpages import ROOT, Relinked, outside
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page
from sitenav import expanded, paths_in

_LINKS = Relinked()
_IN_THE_REPOSITORY = re.compile(r"^<!-- in the repository -->\n.*?^<!-- end -->\n", re.DOTALL | re.MULTILINE)
"""Paragraphs that the site does without."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Write out the folders of the navigation, and put our treatment of links before MkDocs' own."""
    config.nav = expanded(config.nav)
    _LINKS.sources = f"{config.repo_url.rstrip('/')}/blob/main" if config.repo_url else ""
    config.markdown_extensions.append(_LINKS)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside of docs/ that pages link to or that the navigation names; it need not name all."""
    in_nav = set(paths_in(config.nav))
    pages = [Path(file.abs_src_path) for file in files.documentation_pages() if file.abs_src_path]
    named = [ROOT / path for path in in_nav if files.get_file_from_path(path) is None]
    for path, source in outside(pages, named).items():
        inclusion = InclusionLevel.INCLUDED if path in in_nav else InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, path, abs_src_path=str(source), inclusion=inclusion))
    return files


def on_page_markdown(text: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Say which page's links are to be turned, and leave out what is only for readers of the repository."""
    if page.file.abs_src_path:
        _LINKS.file = Path(page.file.abs_src_path)
    return _IN_THE_REPOSITORY.sub("", text)
