"""A release is refused where its parts disagree, and says what is in it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import agree
import pytest
import sbom

ROOT = Path(__file__).parents[1]
PROJECT = '[project]\nversion = "1.2.3"\n'
CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-11-27\n\n## [1.2.2] - 2026-11-01\n"


def test_the_version_and_the_changelog_of_this_checkout_agree() -> None:
    texts = [(ROOT / name).read_text(encoding="utf-8") for name in ("pyproject.toml", "CHANGELOG.md")]
    assert agree.disagreement("", *texts) is None


def test_a_release_whose_tag_version_and_changelog_agree_is_accepted() -> None:
    assert agree.disagreement("v1.2.3", PROJECT, CHANGELOG) is None


@pytest.mark.parametrize(
    ("tag", "changelog", "expected"),
    [
        ("v1.2.4", CHANGELOG, "the tag is v1.2.4, and pyproject.toml has the version 1.2.3"),
        ("1.2.3", CHANGELOG, "tag v1.2.3"),
        ("v1.2.3", CHANGELOG.replace("1.2.3", "1.2.1"), "the newest release in CHANGELOG.md is 1.2.1"),
        ("v1.2.3", "# Changelog\n", "the newest release in CHANGELOG.md is none"),
        ("v1.2.3", CHANGELOG.replace("2026-11-27", "soon"), "CHANGELOG.md has no date for 1.2.3"),
    ],
)
def test_a_release_whose_parts_disagree_is_refused_with_what_to_change(tag: str, changelog: str, expected: str) -> None:
    assert expected in (agree.disagreement(tag, PROJECT, changelog) or "")


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return sbom.bill_of_materials()


def test_the_bill_of_materials_is_valid_by_the_schema_of_cyclonedx(document: dict[str, Any]) -> None:
    assert sbom.invalid(json.dumps(document)) is None
    document = {**document, "components": [{"name": "nameless kind"}]}
    assert sbom.invalid(json.dumps(document)) is not None


def test_the_bill_of_materials_lists_every_locked_package_and_crate_with_a_hash(document: dict[str, Any]) -> None:
    locked = set(re.findall(r"^([\w.-]+)==", (ROOT / "requirements" / "server.txt").read_text(), re.MULTILINE))
    crates = set(re.findall(r'^name = "(.+)"$', (ROOT / "native" / "Cargo.lock").read_text(), re.MULTILINE))
    listed = {component["name"] for component in document["components"]}
    assert listed == locked | (crates - {"streamer-native"})
    for component in document["components"]:
        references = component.get("externalReferences", [])
        assert component.get("hashes") or any(reference.get("hashes") for reference in references), component["name"]
