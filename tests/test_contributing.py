"""What a stranger who wants to contribute is given: forms for issues, hooks, and a page that is true."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

KINDS = {
    "markdown": {"value"},
    "textarea": {"label"},
    "input": {"label"},
    "dropdown": {"label", "options"},
    "checkboxes": {"label", "options"},
}
"""The elements of GitHub's issue forms, with the attributes that each has to have."""


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_an_issue_form_has_what_github_demands(form: Path) -> None:
    """By "Syntax for issue forms" of GitHub's documentation: GitHub shows a form with an error to nobody."""
    written = yaml.safe_load(form.read_text(encoding="utf-8"))
    assert written.keys() <= {"name", "description", "body", "title", "labels", "assignees", "projects", "type"}
    assert all(isinstance(written[key], str) and written[key] for key in ("name", "description"))
    assert len(written["description"]) <= 200
    body: list[dict[str, Any]] = written["body"]
    assert [element for element in body if element["type"] != "markdown"]
    ids = [element["id"] for element in body if "id" in element]
    assert len(ids) == len(set(ids))
    for element in body:
        assert element.keys() <= {"type", "id", "attributes", "validations"}
        attributes = element["attributes"]
        assert attributes.keys() >= KINDS[element["type"]]
        assert all(isinstance(value, str) for key, value in attributes.items() if key != "options")
        assert all(isinstance(value, bool) for value in element.get("validations", {}).values())
        assert re.fullmatch(r"[\w-]+", element.get("id", "none"))
        options = attributes.get("options", ["none"])
        labels = [option["label"] if isinstance(option, dict) else option for option in options]
        assert labels
        assert all(isinstance(label, str) for label in labels)
        assert len(labels) == len(set(labels))


def test_a_report_of_an_error_is_asked_for_the_page_of_streamer_doctor() -> None:
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE/bug.yml").read_text(encoding="utf-8"))
    (doctor,) = [element for element in form["body"] if "streamer doctor" in element["attributes"].get("label", "")]
    assert doctor["validations"]["required"]


def test_the_hooks_run_what_make_lint_runs_in_the_locked_versions() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    (repository,) = config["repos"]
    assert repository["repo"] == "local", "a hook from elsewhere would have a version of its own"
    recipes = dict(re.findall(r"^(\w+):.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    linting = recipes["style"] + recipes["types"] + recipes["layers"]
    made = re.findall(r"\$\(BIN\)/(\S+(?: format| check)?)", linting)
    hooked = [hook["entry"].removesuffix(" --force-exclude") for hook in repository["hooks"]]
    assert hooked == [f".venv/bin/{command}" for command in made]
    pins = dict(re.findall(r"^([\w.-]+)==([^\s;\\]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    assert {name: pins[name] for name in ("ruff", "mypy", "import-linter")} == {
        name: version(name) for name in ("ruff", "mypy", "import-linter")
    }, "make install brings .venv to the versions of the lock"


def test_the_page_explains_every_marker_of_tests() -> None:
    markers = {marker.partition(":")[0] for marker in PROJECT["tool"]["pytest"]["ini_options"]["markers"]}
    (table,) = re.findall(r"<!-- markers -->\n(.*?)<!-- end -->", PAGE, re.DOTALL)
    assert set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE)) == markers


def test_folders_files_and_contracts_that_the_page_names_exist() -> None:
    import connectors.contract

    named = re.findall(r"[ `]((?:tests|streamer|connectors|examples|docs)/[\w./-]+\w)", PAGE)
    assert len(named) > 12
    assert [name for name in named if not (ROOT / name).exists()] == []
    contracts = re.findall(r"`(\w+Contract)`", PAGE)
    assert len(contracts) == 3
    assert [name for name in contracts if not hasattr(connectors.contract, name)] == []


def test_the_changelog_has_the_version_of_the_project_and_a_place_for_the_next() -> None:
    headings = re.findall(r"^## \[(.+?)\](.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings[0] == ("Unreleased", "")
    assert PROJECT["project"]["version"] in [name for name, _ in headings]
    assert all(re.fullmatch(r" - \d{4}-\d\d-\d\d", date) for _, date in headings[1:])
    kinds = set(re.findall(r"^### (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


def test_the_policy_on_what_may_change_fits_what_warns_today() -> None:
    """A deprecation has to be named on the page, which says that there is none."""
    code = [file for package in ("pipelines", "connectors", "streamer") for file in (ROOT / package).rglob("*.py")]
    warning = [file for file in code if re.search(r"(Future|Deprecation)Warning", file.read_text(encoding="utf-8"))]
    assert bool(warning) != ("nothing is deprecated" in (ROOT / "docs/compatibility.md").read_text(encoding="utf-8"))
