"""Check that a tag, the version in pyproject.toml and CHANGELOG.md agree: `python release/agree.py v0.2.0`.

Without a tag only the version and the changelog are compared. Exits with 1, and says what to change, if they differ.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def disagreement(tag: str, project: str, changelog: str) -> str | None:
    """What is wrong with a release, in a sentence; `None` if all agree.

    Args:
        tag: The tag of git, such as `v0.2.0`; empty if there is none yet.
        project: The text of pyproject.toml.
        changelog: The text of CHANGELOG.md, with a heading `## [0.2.0] - 2026-11-27` for each release.
    """
    version: str = tomllib.loads(project)["project"]["version"]
    if tag and tag != f"v{version}":
        return f"the tag is {tag}, and pyproject.toml has the version {version}: tag v{version}, or change the version"
    newest = re.search(r"^## \[(\d[^\]]*)\] - (.+)$", changelog, re.MULTILINE)
    if newest is None or newest[1] != version:
        there = "none" if newest is None else newest[1]
        return f"the newest release in CHANGELOG.md is {there}: add the heading ## [{version}] - YYYY-MM-DD"
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", newest[2]):
        return f"CHANGELOG.md has no date for {version}: ## [{version}] - YYYY-MM-DD"
    return None


if __name__ == "__main__":
    given = sys.argv[1] if len(sys.argv) > 1 else ""
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in ("pyproject.toml", "CHANGELOG.md")]
    sys.exit(disagreement(given, *texts))
