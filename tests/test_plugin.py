"""The template of a plug-in, as a stranger uses it: copied, built, installed elsewhere, taken out again."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
TEMPLATE = ROOT / "examples" / "plugin"
EXAMPLES = ("examples/digits", "examples/sensors", "examples/cameras", "examples/objects")
NAME = "streamer-example-plugin"

BROKEN = {"broken.py": "import a_package_that_is_not_there\n"}
BROKEN_POINTS = "[streamer.steps]\nlost = broken:Lost\n[streamer.stepps]\nodd = broken:Odd\n"
SECOND = {
    "second.py": """
from typing import Literal
from pipelines import Step, RunnerFactory
from pipelines.values import Factory
from example_plugin.config import SqliteSinkConfig

class Other(Step):
    type_name = "STANDARDIZE"

class Table(SqliteSinkConfig):
    pass
"""
}
SECOND_POINTS = "[streamer.steps]\nother = second:Other\n[streamer.sinks]\nsqlite = second:Table\n"


@dataclass(frozen=True)
class Scratch:
    """An environment of its own, with this checkout and what it depends on, and no plug-in."""

    folder: Path
    python: Path
    site: Path
    core: Path
    """Our packages."""

    def streamer(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        """A command of ours that ends with this code."""
        return self.run("-m", "streamer", *arguments, code=code)

    def listed(self, *arguments: str, code: int = 0) -> Any:
        """What a command says in JSON."""
        return json.loads(self.streamer(*arguments, "--json", code=code).stdout)

    def run(self, *arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
        ended = subprocess.run(
            [self.python, *arguments], cwd=self.folder, capture_output=True, text=True, timeout=250, check=False
        )
        assert ended.returncode == code, ended.stdout + ended.stderr
        return ended

    def pip(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "pip", "--python", str(self.python), "--quiet", *arguments]
        subprocess.run(command, check=True, cwd=self.folder, timeout=250)

    def contents(self) -> dict[str, str]:
        """What every file of our packages contains."""
        files = [file for file in self.core.rglob("*.py") if file.is_file()]
        return {str(file): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}

    def unpack(self, wheel: Path) -> None:
        """What pip leaves of a wheel of pure Python, but for its own notes."""
        zipfile.ZipFile(wheel).extractall(self.site)

    def add(self, name: str, files: dict[str, str], points: str) -> None:
        """What installing a small distribution leaves behind."""
        for file, text in files.items():
            (self.site / file).write_text(text)
        info = self.site / f"{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(points)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The template's wheel, built from a copy without network."""
    folder = tmp_path_factory.mktemp("template")
    copy = shutil.copytree(TEMPLATE, folder / "plugin")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(copy)], check=True, timeout=250)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of our packages, with what is compiled of them: somebody may be at work on those of the checkout."""
    folder = tmp_path_factory.mktemp("core")
    for name in ("protos", "pipelines", "connectors", "streamer", "streamer_native", *EXAMPLES):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("target", "src"))
    return folder


@pytest.fixture
def scratch(tmp_path: Path, core: Path) -> Scratch:
    """See `Scratch`."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    (site,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "here.pth").write_text(f"{core}\n{sysconfig.get_path('purelib')}\n{sysconfig.get_path('platlib')}\n")
    folder = tmp_path / "work"
    folder.mkdir()
    shutil.copy(TEMPLATE / "standardize.yaml", folder)
    return Scratch(folder, tmp_path / "venv" / "bin" / "python", site, core)


def npy(array: Any) -> bytes:
    """An array as `numpy.save` writes it."""
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_a_plug_in_is_built_installed_used_and_taken_out_without_a_change_of_the_core(
    scratch: Scratch, wheel: Path
) -> None:
    """K-15, K-22 and K-31: every kind of part, by entry points alone."""
    before = scratch.contents()
    scratch.pip("install", "--no-deps", "--no-index", str(wheel))
    found = scratch.listed("plugins")
    assert found["problems"] == []
    parts = {(one["group"].removeprefix("streamer."), one["name"]) for one in found["plugins"]}
    assert parts == {
        ("steps", "standardize"),
        ("runners", "standardize"),
        ("formats", "npy"),
        ("converters", "npy"),
        ("codecs", "npy"),
        ("sources", "sqlite"),
        ("sinks", "sqlite"),
    }
    assert {(one["distribution"], one["version"]) for one in found["plugins"]} == {(NAME, "0.1.0")}
    (line,) = [line for line in scratch.listed("steps")["steps"] if line["origin"] == NAME]
    assert (line["step_type"], line["runner"], line["available"]) == ("STANDARDIZE", "numpy", True)
    formats = scratch.listed("formats")
    assert [form["form"] for form in formats["formats"] if form["origin"] == NAME] == ["npy"]
    assert len([one for one in formats["converters"] if one["origin"] == NAME]) == 2

    with sqlite3.connect(scratch.folder / "readings.db") as database:
        columns = "number INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB, value BLOB"
        database.execute(f"CREATE TABLE readings ({columns})")
        payloads = [npy(np.full(4, 20.0 + 5 * number)) for number in range(3)]
        database.executemany("INSERT INTO readings (key, value) VALUES (?, ?)", [(b"k", one) for one in payloads])
    summary = scratch.listed("run", "standardize.yaml")
    assert (summary["ok"], summary["dead"], summary["reason"]) == (3, 0, "ended")
    rows = database.execute("SELECT value FROM standardized ORDER BY number").fetchall()
    assert [np.load(io.BytesIO(value)).tolist() for (value,) in rows] == [[float(number)] * 4 for number in range(3)]

    built = scratch.listed("build", "standardize.yaml", "--out", "out")
    assert built["extras"] == []
    assert f"{NAME}==0.1.0" in built["requirements"]
    assert wheel.name in built["wheels"]
    made, given = (set(zipfile.ZipFile(one).namelist()) for one in (scratch.folder / "out/wheels" / wheel.name, wheel))
    assert made == given

    scratch.pip("uninstall", "--yes", NAME)
    assert scratch.listed("plugins") == {"plugins": [], "problems": []}
    ended = scratch.streamer("check", "standardize.yaml", code=2)
    assert 'there is no source of type "sqlite"' in ended.stdout
    assert scratch.contents() == before


def test_the_tests_of_the_template_pass_outside_the_checkout(scratch: Scratch, wheel: Path) -> None:
    """K-31: with the contracts of sources and sinks from our wheel."""
    scratch.unpack(wheel)
    shutil.copytree(TEMPLATE / "tests", scratch.folder / "tests")
    shutil.copy(TEMPLATE / "pyproject.toml", scratch.folder)
    ended = scratch.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    assert " passed" in ended.stdout
    assert "skipped" not in ended.stdout


def test_a_plug_in_that_raises_is_reported_and_the_rest_works(scratch: Scratch, wheel: Path) -> None:
    """K-15: also one in a group that there is not."""
    scratch.unpack(wheel)
    scratch.add("broken_plugin", BROKEN, BROKEN_POINTS)
    found = scratch.listed("plugins", code=1)
    unknown, lost = sorted(found["problems"], key=lambda problem: "lost" in problem)
    assert 'there is no group streamer.stepps; did you mean "streamer.steps"?' in unknown
    assert "plug-in lost of broken_plugin (broken:Lost): ModuleNotFoundError" in lost
    assert "a_package_that_is_not_there" in lost
    ended = scratch.streamer("check", "standardize.yaml")
    assert "wrong" not in ended.stdout
    assert "plug-in lost of broken_plugin" in ended.stderr


def test_two_plug_ins_with_one_name_are_an_error_that_names_both(scratch: Scratch, wheel: Path) -> None:
    """K-28: for steps and for connectors; whoever does not use the name goes on."""
    scratch.unpack(wheel)
    scratch.add("second_plugin", SECOND, SECOND_POINTS)
    both = {
        "step": "example_plugin.step.Standardize (streamer-example-plugin)",
        "other": "second.Other (second_plugin)",
        "sink": "example_plugin.config:SqliteSinkConfig (streamer-example-plugin)",
        "table": "second:Table (second_plugin)",
    }
    problems = "\n".join(scratch.listed("plugins", code=1)["problems"])
    assert all(text in problems for text in both.values())

    ended = scratch.streamer("--debug", "check", "standardize.yaml", code=2)
    assert both["sink"] in ended.stderr
    assert both["table"] in ended.stderr
    text = (scratch.folder / "standardize.yaml").read_text().split("sink:")[0]
    (scratch.folder / "step.yaml").write_text(f"{text}sink: {{type: file, path: out.pb}}\n")
    ended = scratch.streamer("check", "step.yaml", code=2)
    assert both["step"] in ended.stderr
    assert both["other"] in ended.stderr
    (scratch.folder / "neither.yaml").write_text(
        "source: {type: file, path: in.pb}\npipeline: []\nsink: {type: file, path: out.pb}\n"
    )
    scratch.streamer("check", "neither.yaml")


def test_the_listing_of_runners_is_what_is_installed() -> None:
    """K-22: here, where only our own distribution has any."""
    ended = subprocess.run(
        [sys.executable, "-m", "streamer", "steps", "--json"], capture_output=True, text=True, check=True, cwd=os.sep
    )
    lines = json.loads(ended.stdout)["steps"]
    from builtintypes import RUNNERS

    ours = {(factory.step_type, factory.name) for factory in RUNNERS}
    assert {(line["step_type"], line["runner"]) for line in lines if line["runner"] is not None} == ours
