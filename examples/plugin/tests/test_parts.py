"""The step, the form and the codec."""

from __future__ import annotations

import io

import numpy as np
import pipelines
import pytest
import streamer
from pipelines import Data, NDArray
from pipelines.errors import DataError

from example_plugin.npy import Npy
from example_plugin.table import opened


@pytest.mark.parametrize("shapes", [[(3,), (3,)], [(3,), (2, 2)]], ids=["alike", "of two shapes"])
def test_the_step_standardizes_arrays(shapes):
    pipeline = pipelines.loads("steps: [{'@type': STANDARDIZE, fieldName: x, mean: 2, std: 4}]")
    with pipeline.open() as executor:
        results = executor.run_many([Data({"x": np.full(shape, 10, "f4")}) for shape in shapes])
    for result, shape in zip(results, shapes, strict=True):
        assert result["x"].dtype == np.float32
        assert np.array_equal(result["x"], np.full(shape, 2))


def test_a_standard_deviation_of_nothing_is_refused():
    with pytest.raises(pipelines.DefinitionError, match="std"):
        pipelines.loads("steps: [{'@type': STANDARDIZE, std: 0}]")


def test_an_array_becomes_a_file_that_numpy_reads_and_back():
    array = np.arange(6, dtype="f4").reshape(2, 3)
    made = NDArray.create(array).get_as("npy")
    assert np.array_equal(np.load(io.BytesIO(made.content)), array)
    assert NDArray.create(made).get_as(list) == array.tolist()


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY\x09\x00", Npy.of(np.zeros(9)).content[:-1]])
def test_bytes_that_are_no_npy_file_are_an_error(content):
    with pytest.raises(DataError):
        Npy(content).array()


def test_a_service_reads_and_writes_tables(tmp_path):
    database = opened(tmp_path / "feed.db", "records")
    payloads = [Npy.of(np.full(3, 5.0)).content, b"not an array"]
    database.executemany("INSERT INTO records (key, value) VALUES (?, ?)", [(b"k", value) for value in payloads])
    database.commit()
    service = streamer.loads(
        """
        source: {type: sqlite, path: feed.db, codec: npy, follow: false}
        pipeline: [{"@type": STANDARDIZE, mean: 1, std: 2}]
        sink: {type: sqlite, path: results.db, codec: npy}
        dead_letter: {type: sqlite, path: results.db, table: dead}
        """,
        tmp_path,
    )
    summary = service.run()
    assert (summary.ok, summary.dead) == (1, 1)
    rows = opened(tmp_path / "results.db", "records").execute("SELECT key, value FROM records").fetchall()
    assert [(key, Npy(value).array().tolist()) for key, value in rows] == [(b"k", [2.0, 2.0, 2.0])]
