"""The documentation is true: its examples load and run, its commands and links exist, its tables are the models'.

An HTML comment before a block says what it is: `<!-- pipeline -->` and `<!-- fragment -->` (some fields of a service)
for YAML, `<!-- other: WHAT -->` for a format that is not ours, `<!-- file: NAME -->` for what is kept as a file (Python
of it runs, too), `<!-- given: CODE -->` for Python that runs before, `<!-- run -->` for commands that are run in their
turn. Without one a YAML block is a service file. `<!-- needs: MODULE -->` anywhere: without it the page is not run.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import typer
import yaml
from connectorpages import our_pages
from exportedmetrics import exported_families
from generate import REGION, refreshed, regions
from onnx import TensorProto, helper, save
from pageblocks import ROOT, Block, blocks_of

import pipelines
import streamer
from pipelines import Image
from pipelines.definitions.documents import parse_document
from streamer.build.uses import used_by
from streamer.cli.app import app
from streamer.definition.scaffold import Kind, SourceKind, files_of
from streamer.definition.schema import service_schema

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(page for folder in ("docs", "examples", "deploy") for page in ROOT.glob(f"{folder}/**/*.md")),
        *ROOT.glob("benchmarks/*.md"),
    ]
)
NAMES = [page.relative_to(ROOT).as_posix() for page in PAGES]
BLOCKS = [block for page in PAGES for block in blocks_of(page)]

IN_PROCESS = {page.path.relative_to(ROOT).as_posix() for page in our_pages() if page.name != "protobuf"}
"""Pages whose Python `tests/test_connector_pages.py` runs, without a process for each."""

FRAME = {"source": {"type": "memory", "topic": "in"}, "pipeline": [], "sink": {"type": "memory", "topic": "out"}}
"""The service that a fragment is put into."""

_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


_TESTS = re.compile(r"`((?:\w+/)+\w+\.py)`: (\*[^|;]+\*)")
"""A file and names of tests in it, in a table."""


def _runs(block: Block) -> bool:
    return block.mark == "run" or (block.language == "python" and block.mark not in ("input", "output"))


def _blocks(*languages: str) -> list[Block]:
    return [block for block in BLOCKS if block.language in languages]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The files that examples name: the digits example, models, records, photos."""
    digits = ROOT / "examples" / "digits"
    shutil.copytree(digits, tmp_path / "examples" / "digits")
    shutil.copy(digits / "digits.onnx", tmp_path / "model.onnx")
    _save_fans(tmp_path / "fans.onnx")
    for name in ("digits.onnx", "digits.pipeline.yaml"):
        shutil.copy(digits / name, tmp_path)
    images = np.load(digits / "digits.npz")["images"][:3]
    (tmp_path / "records.jsonl").write_text("".join(json.dumps({"image": one.tolist()}) + "\n" for one in images))
    (tmp_path / "photos").mkdir()
    for name in ("faces.onnx", "face.jpg"):
        (tmp_path / name).symlink_to(ROOT / "examples" / "cameras" / name)
    photo = Image(np.full((4, 6, 3), 128, np.uint8))
    (tmp_path / "photos" / "a.png").write_bytes(photo.get_as("png"))
    (tmp_path / "photo.jpg").write_bytes(photo.get_as("jpeg"))
    return tmp_path


def test_the_service_of_the_page_on_schemas_passes_its_case_without_a_registry(folder: Path) -> None:
    _keep_files("docs/schemas.md", folder)
    (case,) = [block.text for block in BLOCKS if block.page == "docs/schemas.md" and block.value == "a case"]
    (folder / "cases").mkdir()
    (folder / "cases" / "mild.yaml").write_text(case)
    _succeeds([sys.executable, "-m", "streamer", "test", "scores.yaml"], folder)


def _save_fans(path: Path) -> None:
    """The model of the pages on fans: of `x`, temperature and vibration, the mean is `risk`."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 2])
    risk = helper.make_tensor_value_info("risk", TensorProto.FLOAT, ["N", 1])
    graph = helper.make_graph([helper.make_node("ReduceMean", ["x"], ["risk"], axes=[1])], "fans", [x], [risk])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.mark.parametrize("block", _blocks("yaml"), ids=str)
def test_an_example_in_yaml_loads(block: Block, folder: Path) -> None:
    if block.mark == "other":
        assert yaml.safe_load(block.text)
    elif block.mark == "pipeline":
        assert pipelines.loads(block.text, base=folder).steps
    elif block.mark == "file":
        _keep_files(block.page, folder)
        streamer.loads(block.text, base=folder, environment={"SCHEMA_REGISTRY_URL": "mock://docs"})
    elif block.mark == "fragment":
        streamer.loads(yaml.safe_dump({**FRAME, **yaml.safe_load(block.text)}), base=folder)
    else:
        streamer.loads(block.text, base=folder)


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """The schema that `streamer schema` writes, by which editors check service files."""
    return service_schema()


def _complaints(schema: dict[str, Any], given: Any) -> list[str]:
    errors = jsonschema.Draft202012Validator(schema).iter_errors(given)
    return [f"{error.json_path}: {error.message}" for error in errors]


@pytest.mark.parametrize("block", [block for block in _blocks("yaml") if block.mark != "other"], ids=str)
def test_an_example_in_yaml_is_valid_by_the_published_schema(block: Block, schema: dict[str, Any]) -> None:
    # As editors read YAML: `on` is a text, not true.
    given = parse_document(block.text).data
    if block.mark == "pipeline":
        given = {**FRAME, "pipeline": given}
    elif block.mark == "fragment":
        given = {**FRAME, **given}
    assert _complaints(schema, given) == []


@pytest.mark.parametrize(
    "file",
    [
        file
        for file in sorted([*ROOT.glob("examples/*/*.yaml"), *ROOT.glob("deploy/*.yaml")])
        # Those of the example plug-in need it.
        if "source" in (yaml.safe_load(file.read_text()) or {}) and file.parent.name != "plugin"
    ],
    ids=lambda file: str(file.relative_to(ROOT)),
)
def test_a_service_file_of_the_examples_is_valid_by_the_published_schema(file: Path, schema: dict[str, Any]) -> None:
    assert _complaints(schema, yaml.safe_load(file.read_text())) == []


@pytest.mark.parametrize("source", ["kafka", "mqtt", "http", "file", "memory", "camera"])
def test_a_new_service_is_valid_by_the_published_schema(source: SourceKind, schema: dict[str, Any]) -> None:
    sink: Kind = "memory" if source == "camera" else source
    text = files_of("pumps", source, sink)["pumps.yaml"]
    assert isinstance(text, str)
    assert _complaints(schema, yaml.safe_load(text)) == []


def _keep_files(page: str, folder: Path) -> None:
    for block in BLOCKS:
        if block.page == page and block.mark == "file":
            (folder / block.value).write_text(block.text)


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted({block.page for block in BLOCKS if _runs(block)} - IN_PROCESS))
def test_a_page_runs_from_top_to_bottom(page: str, folder: Path) -> None:
    for module in re.findall(r"<!-- needs: (\S+) -->", (ROOT / page).read_text()):
        pytest.importorskip(module)
    _keep_files(page, folder)
    scripts: list[str] = []
    checks: list[str] = []
    for block in BLOCKS:
        if block.page != page or not _runs(block):
            continue
        if block.mark == "run":
            _run_python(scripts, folder)
            scripts = []
            _succeeds(["bash", "-euo", "pipefail", "-c", block.text], folder)
            continue
        name = block.value if block.mark == "file" else f"line_{block.line}.py"
        given = f"{block.value}\n" if block.mark == "given" else ""
        (folder / name).write_text(given + block.text)
        (checks if name.startswith("test_") else scripts).append(name)
    _run_python(scripts, folder)
    if checks:
        _succeeds([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *checks], folder)


def _run_python(scripts: list[str], folder: Path) -> None:
    driver = "import runpy, sys; sys.path.insert(0, '.'); [runpy.run_path(one) for one in sys.argv[1:]]"
    if scripts:
        _succeeds([sys.executable, "-c", driver, *scripts], folder)


def _succeeds(command: list[str], folder: Path) -> None:
    # Commands are those of this environment.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=250, env={**os.environ, "PATH": path}
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("block", _blocks("json", "toml"), ids=str)
def test_an_example_in_json_or_toml_is_well_formed(block: Block) -> None:
    read: Any = json.loads if block.language == "json" else tomllib.loads
    assert read(block.text)


def _command_lines() -> list[tuple[str, str]]:
    """Commands in `sh` blocks and in indented lines, with where they stand."""
    found = []
    for page, name in zip(PAGES, NAMES, strict=True):
        lines = [line for block in blocks_of(page) if block.language == "sh" for line in _whole_lines(block.text)]
        lines += re.findall(r"^    ((?:[A-Z_]+=\S+ )?streamer [a-z].*)$", page.read_text(), re.MULTILINE)
        found += [(name, line) for line in lines if re.search(r"\bstreamer [a-z]", line)]
    return found


def _whole_lines(text: str) -> Iterator[str]:
    """Commands, of which those that go on in the next line, after a backslash or in quotation marks, are one."""
    begun = ""
    for line in text.replace("\\\n", " ").splitlines():
        begun += line
        try:
            shlex.split(begun, comments=True)
        except ValueError:
            begun += "\n"
        else:
            yield begun
            begun = ""
    assert not begun, f"no end: {begun}"


def test_every_block_of_commands_is_marked_as_such() -> None:
    unknown = [str(block) for block in _blocks("bash", "shell", "console", "zsh")]
    assert unknown == [], "```sh is checked"


@cache
def _commands() -> dict[str, Any]:
    found: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize(("page", "line"), _command_lines())
def test_a_command_line_is_understood(page: str, line: str) -> None:
    words = shlex.split(line, comments=True)
    words = words[words.index("streamer") + 1 :]
    commands = _commands()
    assert words[0] in commands, f"there is no command {words[0]}"
    # Parses as the command line does, and runs nothing.
    commands[words[0]].make_context(words[0], words[1:])


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_command_in_a_sentence_has_these_options(page: Path) -> None:
    commands = _commands()
    for command, rest in re.findall(r"`streamer ([a-z]+)([^`]*)`", page.read_text()):
        assert command in commands, f"there is no command {command}"
        known = {option for parameter in commands[command].params for option in parameter.opts} | {"--help"}
        assert set(re.findall(r"(?<=\s)--?[a-z-]+", rest)) <= known, f"streamer {command}{rest}"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_link_leads_somewhere(page: Path) -> None:
    for link in _LINK.findall(page.read_text()):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = page if not path else page.parent / path
        assert target.exists(), f"{link}: there is no {target}"
        if anchor:
            assert anchor in _anchors(target), f"{link}: there is no such heading"


def test_a_page_that_code_and_error_messages_name_exists() -> None:
    named = re.compile(r"\b((?:docs|examples|benchmarks)/[\w/-]+\.md)(?:#([\w-]+))?")
    found = [
        (file, page, anchor)
        for folder in ("streamer", "connectors", "pipelines", "native/src", "examples", "deploy", "benchmarks", ".")
        for file in (ROOT / folder).glob("*" if folder == "." else "**/*")
        if file.suffix in (".py", ".pyi", ".rs", ".yaml", ".yml", ".toml", ".html", ".js", ".sh") or "file" in file.name
        if file.is_file()
        for page, anchor in named.findall(file.read_text(encoding="utf-8", errors="replace"))
    ]
    assert len(found) > 20
    for file, page, anchor in found:
        assert (ROOT / page).exists(), f"{file}: there is no {page}"
        assert not anchor or anchor in _anchors(ROOT / page), f"{file}: {page} has no heading {anchor}"


def _anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@cache
def _metrics() -> set[str]:
    endings = {"histogram": ("", "_sum", "_count", "_bucket")}
    return {
        f"{family.name}{ending}"
        for family in exported_families()
        for ending in endings.get(family.type, ("", "_total"))
    }


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_metric_exists(page: Path) -> None:
    named = set(re.findall(r"\bstreamer_[a-z_]+\b", page.read_text()))
    assert named - {"streamer_inference", "streamer_native"} <= _metrics()


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_make_target_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^    |`)make ([a-z-]+)", page.read_text(), re.MULTILINE)) <= targets


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_an_extra_exists(page: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(rf"(?:{project['name']}|'\.)\[([a-z,]+)\]", page.read_text())
    assert {extra for one in named for extra in one.split(",")} <= project["optional-dependencies"].keys()


def test_the_extras_that_the_readme_installs_are_enough_for_its_services(folder: Path) -> None:
    (installed,) = re.findall(
        r"^pip install --constraint constraints.txt '\.\[([a-z,]+)\]'", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    services = [block for block in _blocks("yaml") if block.page == "README.md" and block.mark in ("", "file")]
    assert len(services) > 3
    for block in services:
        needed = {package.extra for package in used_by(streamer.loads(block.text, base=folder)).packages}
        assert needed - {None} <= set(installed.split(",")), block
    assert "broker" in installed.split(","), "streamer broker is shown"


def test_the_readme_says_the_command_that_ci_runs() -> None:
    command = (ROOT / ".ci" / "run").read_text().splitlines()[-1].removeprefix("exec ")
    assert command == "make test"
    assert f"    {command} " in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_the_tables_of_fields_are_those_of_the_models(page: Path) -> None:
    assert refreshed(page) == page.read_text(), "python docs/generate.py writes them anew"


def test_every_field_of_a_service_file_and_of_the_steps_is_documented() -> None:
    shown = [found[2] for page in PAGES for found in REGION.finditer(page.read_text())]
    assert not regions().keys() - set(shown), (
        "give each its `<!-- fields: NAME -->` and `<!-- end -->`, then docs/generate.py"
    )
    assert len(shown) == len(set(shown)), "one of them is in two pages"


@pytest.mark.parametrize(("page", "least"), [("delivery", 20), ("vocabulary", 7)])
def test_tests_that_a_page_names_exist(page: str, least: int) -> None:
    found = _TESTS.findall((ROOT / f"docs/{page}.md").read_text(encoding="utf-8"))
    assert len(found) > least
    for file, names in found:
        path = next(path for path in (ROOT / "tests" / file, ROOT / file) if path.exists())
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"\*([^*]+)\*", names):
            assert f"def test_{name.replace(' ', '_')}(" in text, f"{path.name} has no test: {name}"


def test_test_files_that_the_page_on_delivery_names_exist() -> None:
    found = set(re.findall(r"`((?:\w+/)+\w+(?:\.py)?)`", (ROOT / "docs/delivery.md").read_text(encoding="utf-8")))
    assert len(found) > 40
    for name in found:
        places = [ROOT / folder / (name + ending) for folder in ("tests", ".") for ending in ("", ".py")]
        assert any(place.exists() for place in places), f"there is no {name}"
