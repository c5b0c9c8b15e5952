"""Each step has a page: its example gives the results that it shows, its pictures are current, the index has it."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from builtintypes import STEPS
from stepexamples import Example, difference, examples
from steppages import FOLDER, KINDS, OTHERS, OURS, about, index, missing_pages, page_name, part_name, types_of
from stubs import stubs

import pipelines
import pipelines.steps
import pipelines.steps.models
from pipelines import Image, StepError
from pipelines.data.data import as_data
from pipelines.errors import DISTRIBUTION
from pipelines.plugins.registry import OURS as BUILT_IN
from pipelines.plugins.registry import Registry, default_registry
from pipelines.steps import Step, Typed

ROOT = FOLDER.parent.parent
PAGES = [FOLDER / page_name(model) for model in OURS]
EXAMPLES = [example for page in PAGES if page.exists() for example in examples(page)]
PICTURES = sorted((FOLDER / "pictures").glob("*.png"))

NOT_RUN = re.compile(r"^<!-- not run: \S.* -->$", re.MULTILINE)
"""In a page: why its example is loaded and written only."""

REMEMBERS = ("PYTHON", "MOTION", "TRACK", "ZONES", "WINDOW", "DEDUP", "CHANGE", "JOIN", "remember:")
"""What steps have that know the records before; the example of `PYTHON` counts its records."""

MAKES_IMAGES = ("draw", "drawgrid", "extract")
PICTURED = {"IMAGE_RESIZE", "IMAGE_CROP", "GRAY_SCALE", "PERSPECTIVE_TRANSFORM", "BLUR"} | {
    step.type_name for step in STEPS if step.__module__.rpartition(".")[2] in MAKES_IMAGES
}
"""Steps that make images of images."""

LARGEST = 40 * 1024


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of an example: the pictures, the digits example, a photo with its detector."""
    for picture in PICTURES:
        shutil.copy(picture, tmp_path)
    for name in ("digits.onnx", "digits.npz"):
        shutil.copy(ROOT / "examples" / "digits" / name, tmp_path)
    (tmp_path / "objects.onnx").symlink_to(ROOT / "examples" / "objects" / "objects.onnx")
    shutil.copy(ROOT / "examples" / "cameras" / "table.jpg", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("model", OURS, ids=part_name)
def test_a_step_has_a_page_with_an_example_of_it(model: type[Typed]) -> None:
    page = FOLDER / page_name(model)
    assert page.exists(), "python docs/generate.py writes one that is to be completed"
    text = page.read_text()
    assert text.startswith(f"# `{model.type_name}`\n")
    assert f"<!-- about: {part_name(model)} -->" in text
    assert re.search(r"^## In and out\n\n\S", text, re.MULTILINE), "say what it reads and what it gives"
    shown = [one for one in examples(page) if re.search(rf'@type"?: "?{model.type_name}\b', one.definition.text)]
    assert shown, "the page has no example with this type"
    assert any(one.runs for one in shown) or NOT_RUN.search(text), "the example has no input and output"


def test_every_built_in_step_type_is_among_those_that_have_a_page() -> None:
    listed = {line.step_type for line in default_registry().listing() if line.origin in (BUILT_IN, DISTRIBUTION)}
    assert listed <= {model.type_name for model in OURS if issubclass(model, Step)}


def test_there_are_no_pages_of_steps_that_there_are_not() -> None:
    assert {page.name for page in FOLDER.glob("*.md")} == {page.name for page in PAGES} | {"README.md"}


def test_every_step_is_in_the_index() -> None:
    listed = re.findall(r"^\| \[`\w+`\]\((\w+\.md)\) \|", (FOLDER / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(page.name for page in PAGES)
    assert {model.kind for model in OURS} == {Step.kind, *KINDS}
    assert f"\n## {OTHERS}\n" not in index(OURS), "a folder of steps has no heading"


def test_the_stubs_have_every_step() -> None:
    """`python docs/generate.py` writes them."""
    assert [path.name for path, text in stubs().items() if path.read_text() != text] == []


def test_a_step_needs_no_file_but_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module in a folder of steps is all that a page, the index, the stub and definitions take."""
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "flip.py").write_text(FLIP)
    monkeypatch.setattr(pipelines.steps, "__path__", [*pipelines.steps.__path__, str(tmp_path)])
    monkeypatch.setattr(pipelines.steps.models, "__path__", [*pipelines.steps.models.__path__, str(folder)])
    registry = Registry(plugins=False)
    models = types_of(registry)
    (flip,) = (model for model in models if model.type_name == "FLIP_FOR_TEST")
    try:
        ((path, page),) = missing_pages(models).items()
        assert path == FOLDER / "flip_for_test.md"
        assert page.startswith("# `FLIP_FOR_TEST`\n")
        assert "<!-- fields: step.FLIP_FOR_TEST -->" in page
        assert about(flip).startswith("Turns a value round.\n\nIn Python `pipelines.FlipForTest`.")
        row = "| [`FLIP_FOR_TEST`](flip_for_test.md) | Turns a value round. *Not in Konduit Serving.* | `[image]` |"
        models_of_index = index(models).split("\n## Models\n")[1].split("\n## ")[0]
        assert row in models_of_index
        assert all("FlipForTest" in text for text in stubs().values())
        pipeline = pipelines.loads('steps: [{"@type": FLIP_FOR_TEST, fieldName: a}]', registry=registry)
        assert pipeline.to_dict()["steps"] == [{"@type": "FLIP_FOR_TEST", "fieldName": "a"}]
    finally:
        sys.modules.pop(flip.__module__)


FLIP = '''
from typing import ClassVar

from pipelines.steps.base import RunBy, Step


class FlipForTest(Step):
    """Turns a value round."""

    type_name: ClassVar[str] = "FLIP_FOR_TEST"
    run_by: ClassVar[RunBy | None] = RunBy("opencv", "pipelines.runners.flip:FlipRunner", ("cv2",), extra="image")

    field_name: str
    """Key of the value."""
'''


@pytest.mark.parametrize("example", [one for one in EXAMPLES if one.runs], ids=str)
def test_an_example_gives_what_its_page_says(example: Example, folder: Path) -> None:
    found, expected = example.run(folder)
    assert difference(found, expected, folder) == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "example", [one for one in EXAMPLES if one.runs and "@AsyncTrigger" not in one.definition.text], ids=str
)
def test_a_record_that_lacks_a_value_fails_alone_and_says_which(example: Example, folder: Path) -> None:
    """Of every built-in step: whichever value of its example is missing, and wherever in the batch."""
    if any(name in example.definition.text for name in REMEMBERS):
        pytest.skip("what becomes of a record depends on the records before it")
    first, *others = example.records()
    for key in first:
        less = as_data({**{name: value for name, value in first.items() if name != key}, "other": "x"})
        given = [first, *others, less, first]
        together = example.run_many(folder, given)
        alone = [example.run_many(folder, [one])[0] for one in given]
        assert [str(one) if isinstance(one, StepError) else one for one in together] == [
            str(one) if isinstance(one, StepError) else one for one in alone
        ]
        failed = together[-2]
        if isinstance(failed, StepError):
            assert f'"{key}"' in str(failed) or "could not be inferred" in str(failed) or "has no image" in str(failed)


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_the_definition_of_an_example_is_the_same_when_written_and_read(example: Example, folder: Path) -> None:
    pipeline = pipelines.loads(example.definition.text, base=folder)
    assert pipelines.loads(pipeline.to_json(), base=folder) == pipeline
    assert pipelines.loads(pipeline.to_yaml(), base=folder) == pipeline


@pytest.mark.parametrize("type_name", sorted(PICTURED))
def test_a_step_on_images_shows_what_goes_in_and_what_comes_out(type_name: str) -> None:
    text = (FOLDER / f"{type_name.lower()}.md").read_text()
    shown = set(re.findall(r"!\[[^\]]+\]\(pictures/([\w.]+)\)", text))
    before, after = pictures_of(text, "input"), pictures_of(text, "output")
    assert after, "the output of the example names no picture"
    assert after <= shown
    assert not before or before & shown


def pictures_of(page: str, mark: str) -> set[str]:
    """The pictures that the blocks with a mark open."""
    blocks = re.findall(rf"<!-- {mark} -->\n```python\n(.*?)```", page, re.DOTALL)
    return {name for block in blocks for name in re.findall(r'Image\.open\("([\w.]+)"\)', block)}


@pytest.mark.parametrize("picture", PICTURES, ids=lambda one: one.name)
def test_a_picture_is_small_and_shown(picture: Path) -> None:
    assert picture.stat().st_size <= LARGEST
    assert any(f"(pictures/{picture.name})" in page.read_text() for page in PAGES)


def test_a_picture_that_is_out_of_date_is_found(folder: Path) -> None:
    example = next(one for one in EXAMPLES if one.definition.page.endswith("/gray_scale.md"))
    found, expected = example.run(folder)
    (folder / "gray_scale.png").write_bytes(Image(np.full((160, 240, 1), 9, np.uint8)).get_as("png"))
    assert "python docs/pictures.py" in difference(found, expected, folder)
