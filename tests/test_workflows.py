"""The workflows of .github are valid, pinned and ask for no more than they need; what they call exists."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from programs import program

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / ".github" / "workflows"
WORKFLOWS = sorted(FOLDER.glob("*.yml"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def steps_of(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job.get("steps", ())]


def test_workflows_are_valid() -> None:
    # Without programs that may be on one machine and not on another.
    command = [program("actionlint"), "-shellcheck=", "-pyflakes=", *map(str, WORKFLOWS)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_workflows_have_no_known_weakness() -> None:
    zizmor = Path(sysconfig.get_path("scripts")) / "zizmor"
    # What it calls low is a matter of taste, such as a new way to name workflows of the same repository.
    command = [str(zizmor), "--offline", "--no-progress", "--min-severity", "medium", "--format", "plain", str(FOLDER)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_make_target_that_a_workflow_calls_exists() -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE, re.MULTILINE))
    called = {
        word
        for workflow in WORKFLOWS
        for step in steps_of(workflow)
        for arguments in re.findall(r"\bmake ([^\n;&|]+)", step.get("run", ""))
        for word in arguments.split()
        if not word.startswith("-") and "=" not in word
    }
    assert called
    assert called <= targets


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_every_action_is_pinned_by_the_hash_of_a_commit_and_says_its_version(workflow: Path) -> None:
    used = re.findall(r"\buses: (.+)$", workflow.read_text(encoding="utf-8"), re.MULTILINE)
    for action in used:
        assert action.startswith("./") or re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), (
            action
        )


def test_tests_run_on_every_version_of_python_that_the_package_says_it_supports() -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    matrix = yaml.safe_load((FOLDER / "tests.yml").read_text(encoding="utf-8"))["jobs"]["pythons"]["strategy"]["matrix"]
    assert set(named) <= set(matrix["python"])
    assert project["requires-python"] == f">={matrix['python'][0]}"


@pytest.mark.parametrize("system", ["linux", "macos", "windows"])
def test_one_wheel_is_built_for_each_kind_of_machine(system: str) -> None:
    command = [
        sys.executable,
        "-m",
        "cibuildwheel",
        "--print-build-identifiers",
        "--platform",
        system,
        "--archs",
        "all",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    built = done.stdout.split()
    assert built
    assert all(name.startswith("cp311-") for name in built)
    machines = {"linux": 4, "macos": 2, "windows": 1}[system]
    common = [name for name in built if re.search(r"(linux_(x86_64|aarch64)|macosx_(x86_64|arm64)|win_amd64)$", name)]
    assert len(common) == machines
