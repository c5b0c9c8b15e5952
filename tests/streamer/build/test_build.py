"""`streamer build`: exactly what a service needs, in a folder that installs and runs without anything else."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from streamer.build.closure import closure
from streamer.definition.loading import load

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
DIGITS = ROOT / "examples" / "digits"

FUNCTIONS = """
import json, local_help
from yaml import safe_load

def step(data):
    import psutil
    from google.protobuf import message
    return data

def route(data):
    import not_installed_anywhere
    return 0

def join(datas):
    import sortedcontainers
    return datas[0]
"""
GRAPH = """
'@AsyncTrigger': {'@type': CACHING_TRIGGER, frequencyMs: 0}
steps:
  sw: {'@type': SWITCH, '@input': input, switchFn: {'@type': FUNCTION_SWITCH, numOutputs: 2, function: 'mine:route'}}
  a: {'@type': SWITCH_OUTPUT, '@input': sw, outputNum: 0}
  b: {'@type': SWITCH_OUTPUT, '@input': sw, outputNum: 1}
  inner: {'@type': PIPELINE, '@input': a, pipeline: deep/inner.yaml}
  any: {'@type': ANY, '@input': [inner, b]}
  end: {'@type': COMBINE, '@input': [any, input], combineFn: {'@type': FUNCTION, function: 'mine:join'}}
"""
INNER = """
steps:
  - {'@type': ONNX, modelUri: models/m.onnx}
  - {'@type': FUNCTION, function: 'mine:step'}
  - {'@type': PYTHON, pythonConfig: {pythonCode: "import semver", importCodePath: setup.py}}
"""
SERVICE = """
name: many
source: {type: file, path: "${INPUT:-in.pb}"}
pipeline: pipelines/graph.yaml
sink: {type: file, path: out.jsonl, format: jsonl, codec: json}
steps: {inner: {retry: {on: [OSError, troubles.Busy]}}}
control: {listen: "0.0.0.0:9470"}
"""


def names(requirements: list[str]) -> set[str]:
    """The distributions of requirements."""
    return {re.split(r"[\[=]", one)[0] for one in requirements}


@pytest.fixture
def many(tmp_path: Path) -> Path:
    """A service of pipelines in pipelines, a trigger, functions everywhere, and modules of its own."""
    folder = tmp_path / "many"
    (folder / "pipelines" / "deep" / "models").mkdir(parents=True)
    (folder / "many.yaml").write_text(SERVICE)
    (folder / "mine.py").write_text(FUNCTIONS)
    (folder / "troubles.py").write_text("class Busy(Exception): ...\n")
    (folder / "local_help").mkdir()
    (folder / "local_help" / "__init__.py").write_text("import attrs\nfrom . import more\n")
    (folder / "local_help" / "more.py").write_text("TABLE = 'table.txt'\n")
    (folder / "local_help" / "table.txt").write_text("1\n")
    (folder / "unused.py").write_text("import scipy\n")
    (folder / "pipelines" / "graph.yaml").write_text(GRAPH)
    (folder / "pipelines" / "deep" / "inner.yaml").write_text(INNER)
    (folder / "pipelines" / "deep" / "setup.py").write_text("import wrapt\n")
    models = folder / "pipelines" / "deep" / "models"
    shutil.copy(DIGITS / "digits.onnx", models / "m.onnx")
    (models / "m.onnx.data").write_bytes(b"weights")
    (models / "other.onnx").write_bytes(b"not asked for")
    return folder / "many.yaml"


def test_an_onnx_pipeline_on_kafka_needs_the_core_kafka_and_onnx_and_nothing_else(cli: Any, tmp_path: Path) -> None:
    """K-33."""
    ended = cli("build", DIGITS / "digits.yaml", "--out", tmp_path / "out", "--json")
    assert ended.code == 0, ended.err
    built = json.loads(ended.out)
    assert built["extras"] == ["kafka", "onnx"]
    assert built["requirements"][0] == f"streamer-inference[kafka,onnx]=={version('streamer-inference')}"
    core = names([str(pin) for pin in closure({"streamer-inference": []})])
    # Versions of what the core needs differ in whether they need packaging themselves.
    more = {"confluent-kafka", "onnxruntime", "flatbuffers", "packaging"} - core
    assert names(built["requirements"]) - core == more
    assert all(version(one.split("==")[0]) == one.split("==")[1] for one in built["requirements"][1:])
    assert sorted(built["files"]) == [
        f"service/{name}" for name in ("digits.onnx", "digits.pipeline.yaml", "digits.yaml")
    ]
    assert built["environment"] == ["KAFKA_BOOTSTRAP_SERVERS"]
    lines = (tmp_path / "out" / "requirements.txt").read_text().splitlines()
    assert [line for line in lines if not line.startswith(("#", "--"))] == built["requirements"]


def test_a_service_that_names_no_broker_reads_it_from_the_environment_of_its_container(
    cli: Any, tmp_path: Path
) -> None:
    text = "{kafka}pipeline: [{'@type': LOGGING}]\nsink: {type: memory, topic: out}\n"
    for given, wanted in (("", ["KAFKA_BOOTSTRAP_SERVERS"]), (", bootstrap: 'k:9092'", [])):
        source = f"source: {{type: kafka, topics: a{given}}}\n"
        (tmp_path / "a.yaml").write_text(text.replace("{kafka}", source))
        ended = cli("build", tmp_path / "a.yaml", "--out", tmp_path / "out", "--json")
        assert json.loads(ended.out)["environment"] == wanted


def test_a_model_in_a_store_needs_the_extra_that_fetches_it(cli: Any, tmp_path: Path) -> None:
    model = "pipeline: [{'@type': ONNX, modelUri: 's3://models/m.onnx'}]\n"
    (tmp_path / "a.yaml").write_text(f"source: {{type: memory, topic: a}}\n{model}sink: {{type: memory, topic: b}}\n")
    ended = cli("build", tmp_path / "a.yaml", "--out", tmp_path / "out", "--json")
    assert set(json.loads(ended.out)["extras"]) == {"onnx", "s3"}


@pytest.mark.parametrize(
    ("where", "step", "when", "extras"),
    [
        ("{a: 1}", "{'@type': MAP, where: a > 1}", "{a: 1}", {"map"}),
        ("{a: 1}", "{'@type': MAP, where: {a: 1}, select: {b: a}}", "{a: 1}", set()),
        ("{a: 1}", "{'@type': LOGGING}", "[{a: 1}, a > 1]", {"map"}),
        ("a > 1", "{'@type': LOGGING}", "{a: 1}", {"map"}),
    ],
)
def test_polars_is_needed_for_expressions_alone(cli: Any, tmp_path: Path, where: str, step: str, when: str, extras: set[str]) -> None:
    (tmp_path / "a.yaml").write_text(
        f"source: {{type: memory, topic: a, where: {where}}}\npipeline: [{step}]\nsink: {{type: memory, topic: b, when: {when}}}\n"
    )
    ended = cli("build", tmp_path / "a.yaml", "--out", tmp_path / "out", "--json")
    assert set(json.loads(ended.out)["extras"]) == extras


def named_by(extra: str) -> set[str]:
    """What our distribution's own metadata say that the extra needs."""
    found = [Requirement(text) for text in requires("streamer-inference") or ()]
    return {one.name for one in found if one.marker is not None and f'extra == "{extra}"' in str(one.marker)}


@pytest.mark.parametrize(
    ("extra", "more"),
    [
        ("kafka", set()),
        ("onnx", {"flatbuffers", "packaging"}),
        ("image", set()),
        ("arrow", set()),
        ("camera", set()),
        ("pillow", set()),
    ],
)
def test_an_extra_adds_what_it_names_and_nothing_else(extra: str, more: set[str]) -> None:
    """K-30. `more` is what that needs itself, if the core does not."""
    core = {pin.name for pin in closure({"streamer-inference": []})}
    named = named_by(extra)
    assert named
    assert {pin.name for pin in closure({"streamer-inference": [extra]})} - core == (named | more) - core
    assert not core & {"confluent-kafka", "onnxruntime", "opencv-python-headless", "pyarrow", "av", "pillow", "torch"}


SERVICES = [
    file
    for file in sorted(ROOT.glob("examples/*/*.yaml"))
    # That of the plug-in needs it installed, and is run in tests/test_plugin.py.
    if "source:" in file.read_text() and file.parent.name != "plugin"
]


@pytest.mark.parametrize("folder", sorted({file.parent for file in SERVICES}), ids=lambda folder: folder.name)
def test_every_example_states_its_extras(cli: Any, tmp_path: Path, folder: Path) -> None:
    """K-30."""
    built: set[str] = set()
    for file in (file for file in SERVICES if file.parent == folder):
        built |= set(json.loads(cli("build", file, "--out", tmp_path / file.stem, "--json").out)["extras"])
    own = folder / "requirements.txt"
    # Where an example has requirements of its own, these say what its README would.
    text = (own if own.exists() else folder / "README.md").read_text()
    stated = {extra for one in re.findall(r"streamer-inference\[([a-z,]+)\]", text) for extra in one.split(",")}
    # Its own code may need more than the service file tells.
    assert built <= stated if own.exists() else built == stated


def test_imported_modules_and_files_beside_the_service_are_taken_along(cli: Any, many: Path, tmp_path: Path) -> None:
    ended = cli("build", many, "--out", tmp_path / "out", "--json")
    assert ended.code == 0, ended.err
    built = json.loads(ended.out)
    assert built["extras"] == ["onnx"]
    core = names([str(pin) for pin in closure({"streamer-inference": ["onnx"]})])
    assert names(built["requirements"]) - core == {
        "psutil",
        "attrs",
        "sortedcontainers",
        "wrapt",
        "semver",
    }
    assert {name.removeprefix("service/") for name in built["files"]} == {
        "many.yaml",
        "mine.py",
        "troubles.py",
        "local_help/__init__.py",
        "local_help/more.py",
        "local_help/table.txt",
        "pipelines/graph.yaml",
        "pipelines/deep/inner.yaml",
        "pipelines/deep/setup.py",
        "pipelines/deep/models/m.onnx",
        "pipelines/deep/models/m.onnx.data",
    }
    assert built["environment"] == ["INPUT"]
    (note,) = built["notes"]
    assert "imports not_installed_anywhere, which is not installed here" in note
    assert built["why"]["psutil"] == "the module mine"


def test_the_dockerfile_starts_the_service_and_asks_whether_it_lives(many: Path, cli: Any, tmp_path: Path) -> None:
    text = many.read_text()
    moved = many.parent / "services" / "many.yaml"
    moved.parent.mkdir()
    moved.write_text(text.replace("pipelines/graph.yaml", "../pipelines/graph.yaml"))
    assert cli("build", moved, "--out", tmp_path / "out").code == 0
    dockerfile = (tmp_path / "out" / "Dockerfile").read_text()
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    for line in (
        f"FROM python:{minor}-slim-bookworm",
        "USER streamer",
        "WORKDIR /srv/service/services",
        "EXPOSE 9470",
        'ENTRYPOINT ["streamer"]',
        'CMD ["run", "many.yaml"]',
    ):
        assert line in dockerfile.splitlines()
    assert "http://127.0.0.1:9470/live" in dockerfile
    seen = (tmp_path / "out" / ".dockerignore").read_text().splitlines()
    copied = {line.split()[1] for line in dockerfile.splitlines() if line.startswith("COPY ") and "--from" not in line}
    assert {f"!{name}" for name in copied} == {line for line in seen if line.startswith("!")}
    assert {path.name for path in (tmp_path / "out").iterdir()} == {*copied, "Dockerfile", ".dockerignore"}


def test_a_service_that_is_named_after_its_folder_keeps_its_name_and_group_in_the_container(
    cli: Any, many: Path, tmp_path: Path
) -> None:
    text = many.read_text().replace("name: many\n", "")
    (many.parent / "service.yaml").write_text(text)
    out = tmp_path / "out"
    ended = cli("build", many.parent / "service.yaml", "--out", out, "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["services"] == ["many"]
    (built,) = out.glob("service/**/service.yaml")
    assert load(built).name == "many"
    assert f"WORKDIR /srv/{built.parent.relative_to(out).as_posix()}\n" in (out / "Dockerfile").read_text()


def test_building_again_leaves_nothing_of_before_and_touches_no_other_folder(
    cli: Any, many: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    assert cli("build", many, "--out", out).code == 0
    (many.parent / "mine.py").write_text("def step(data): return data\nroute = join = step\n")
    assert cli("build", many, "--out", out).code == 0
    assert not (out / "service" / "local_help").exists()
    ended = cli("build", many, "--out", many.parent)
    assert ended.code == 1
    assert "holds other files" in ended.err
    assert (many.parent / "unused.py").exists()


def test_build_says_which_files_are_not_copied(cli: Any, many: Path, tmp_path: Path) -> None:
    inner = many.parent / "pipelines" / "deep" / "inner.yaml"
    inner.write_text(f"steps: [{{'@type': ONNX, modelUri: '{tmp_path}/far.onnx'}}]")
    ended = cli("build", many, "--out", tmp_path / "out", "--json")
    assert any("is an absolute path and is not copied; mount it" in note for note in json.loads(ended.out)["notes"])
    inner.write_text("steps: [{'@type': ONNX, modelUri: none.onnx}]")
    ended = cli("build", many, "--out", tmp_path / "out")
    assert ended.code == 2
    assert "none.onnx is not there" in ended.err


def test_a_distribution_that_the_definition_does_not_show_is_added(cli: Any, tmp_path: Path) -> None:
    ended = cli("build", DIGITS / "digits.yaml", "--out", tmp_path / "out", "--with", "sortedcontainers", "--json")
    assert "sortedcontainers" in names(json.loads(ended.out)["requirements"])
    ended = cli("build", DIGITS / "digits.yaml", "--out", tmp_path / "out", "--with", "no-such-distribution")
    assert ended.code == 1
    assert "no-such-distribution is not installed here" in ended.err


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment in which nothing but the result of `build --wheels` is installed, without network."""
    folder = tmp_path_factory.mktemp("clean")
    command = [sys.executable, "-m", "streamer", "build", str(DIGITS / "digits.yaml"), "--wheels", "--out", "out"]
    subprocess.run(command, check=True, cwd=folder, timeout=400, stderr=subprocess.DEVNULL)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "venv"], check=True, cwd=folder)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "venv" / "bin" / "python"), "install", "--quiet"]
    subprocess.run([*pip, "--no-compile", "-r", "requirements.txt"], check=True, cwd=folder / "out", timeout=400)
    return folder


def run(folder: Path, *arguments: str, code: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command of the clean environment, which compiles what it imports for those after it."""
    ended = subprocess.run(
        [str(folder / "venv" / "bin" / "streamer"), *arguments],
        cwd=cwd or folder / "out" / "service",
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended


@pytest.mark.timeout(900)
def test_a_built_folder_installs_offline_in_a_clean_environment_and_its_service_passes_check(clean: Path) -> None:
    """K-33: nothing is missing, and nothing is there that is not in the list."""
    ended = run(clean, "check", "digits.yaml")
    assert "wrong" not in ended.stdout
    program = "import importlib.metadata as m; print(*sorted(d.metadata['Name'] for d in m.distributions()))"
    # In a folder of its own: what an editable installation leaves in the checkout would be found too.
    python = str(clean / "venv" / "bin" / "python")
    there = subprocess.run([python, "-c", program], cwd=clean, capture_output=True, text=True, check=True)
    lines = (clean / "out" / "requirements.txt").read_text().splitlines()
    assert set(there.stdout.split()) == names([line for line in lines if not line.startswith(("#", "--"))])
    assert len(list((clean / "out" / "wheels").glob("*.whl"))) == len(there.stdout.split())


def test_a_wheel_of_a_checkout_holds_our_packages_and_the_demo(clean: Path) -> None:
    (wheel,) = (clean / "out" / "wheels").glob("streamer_inference-*.whl")
    found = zipfile.ZipFile(wheel).namelist()
    examples = ("streamer/demo/digits/digits.yaml", "streamer/demo/sensors/autoencoder.onnx")
    for name in ("pipelines/data/data.py", "protos/data.proto", "streamer/py.typed", *examples):
        assert name in found
    compiled = {path.name for path in (ROOT / "streamer_native").glob(f"*{EXTENSION_SUFFIXES[0]}")}
    taken = {Path(name).name for name in found if name.endswith(EXTENSION_SUFFIXES[0])}
    assert taken == (compiled if sys.platform == "linux" else set())
    assert not [name for name in found if "__pycache__" in name or name.startswith(("tests/", "native/"))]


def test_an_extra_that_is_missing_is_told_in_a_line(clean: Path, tmp_path: Path) -> None:
    """K-30 and K-34: where OpenCV is not installed, by a codec and by a step, before anything is opened."""
    parts = "source: {type: file, path: in.pb, codec: image}\npipeline: [{'@type': GRAY_SCALE}]\n"
    (tmp_path / "s.yaml").write_text(f"{parts}sink: {{type: file, path: out.pb}}\n")
    command = "pip install 'streamer-inference[image]'"
    found = json.loads(run(clean, "check", "s.yaml", "--json", code=2, cwd=tmp_path).stdout)["services"][0]["findings"]
    wrong = {one["part"]: one["text"] for one in found if not one["ok"]}
    assert wrong == {
        "source file": f"the codec image needs the package cv2: {command}",
        "step 0:GRAY_SCALE": f"the step GRAY_SCALE (runner opencv) needs the package cv2: {command}",
    }
    assert run(clean, "run", "s.yaml", code=1, cwd=tmp_path).stderr == f"error: {wrong['source file']}\n"
    assert not (tmp_path / "out.pb").exists()
