"""A pipeline as a function of Ray Data, in the processes of a cluster: results, and definitions that are not there."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pageblocks import ROOT, blocks_of

from pipelines.arrow import Mapper, mapper

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")]

DIGITS = ROOT / "examples" / "digits" / "digits.pipeline.yaml"
DOUBLE = {"steps": [{"@type": "MAP", "ensure": ["x <> 7"], "select": {"y": "x * 2"}}]}
NUMBERS = pa.table({"x": range(20)})


@pytest.fixture
def definition(tmp_path: Path, ray: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A definition in a folder that is the working directory of this process, and of no worker."""
    path = tmp_path / "double.yaml"
    path.write_text(json.dumps(DOUBLE))
    monkeypatch.chdir(tmp_path)
    return path


def results(ray: Any, f: Mapper, **options: Any) -> list[dict[str, Any]]:
    """What Ray makes of `NUMBERS`, two parts of them, each in a process."""
    rows: list[dict[str, Any]] = (
        ray.data.from_arrow(NUMBERS).repartition(2).map_batches(f.batch, batch_format="pyarrow", **options).take_all()
    )
    return rows


def test_the_page_s_recipe_gives_what_the_pipeline_gives_here(ray: Any) -> None:
    (recipe,) = [block.text for block in blocks_of(ROOT / "docs" / "arrow.md") if block.text.startswith("import ray")]
    with np.load(DIGITS.with_name("digits.npz")) as data:
        table = pa.table({"id": range(899), "image": pa.FixedShapeTensorArray.from_numpy_ndarray(data["images"])})
    f = mapper(DIGITS, keep=["id"])
    names: dict[str, Any] = {"table": table, "f": f, "mapper": mapper, "pa": pa}
    exec(recipe, names)
    expected = f.batch(table).to_pylist()
    for dataset in (names["labels"], names["same"]):
        assert sorted(dataset.take_all(), key=lambda row: row["id"]) == expected


def test_a_record_that_fails_does_not_end_the_job(ray: Any, definition: Path) -> None:
    rows = results(ray, mapper(definition))
    assert sorted(row["y"] for row in rows if row["y"] is not None) == [2 * x for x in range(20) if x != 7]
    (why,) = [row["_error"] for row in rows if row["y"] is None]
    assert why.startswith("0:MAP: ")


def test_a_worker_without_the_definition_says_how_to_ship_it(ray: Any, definition: Path) -> None:
    f = mapper(definition.name)
    with pytest.raises(
        ray.exceptions.RayTaskError, match=r"double\.yaml: there is no such file .*'working_dir': \.\.\."
    ):
        results(ray, f)
    # An archive of a folder is what Ray makes of a `working_dir` of a job, too.
    archive = shutil.make_archive(str(definition.parent.parent / "shipped"), "zip", definition.parent)
    assert len(results(ray, f, runtime_env={"working_dir": f"file://{archive}"})) == 20


def test_a_worker_that_has_another_definition_under_this_path_refuses_to_run(ray: Any, definition: Path) -> None:
    f = mapper(definition)
    definition.write_text(json.dumps(DOUBLE).replace("x * 2", "x * 3"))
    with pytest.raises(ray.exceptions.RayTaskError, match="is not the definition that this mapper was made of"):
        results(ray, f)
