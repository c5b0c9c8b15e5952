"""What becomes of a record is the same alone and in any batch: each step, odd values, each codec, both hot paths."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import onnx
import pytest
from codecsupport import block
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto as T
from onnx import helper

import pipelines
from connectors.codecs.registry import codec_of
from examples import examples
from pipelines import Batch, BoundingBox, Data, DenseColumn, Image, Pipeline, Point, Step
from pipelines.errors import DataError
from pipelines.values import TypedList, ValueType

pytestmark = pytest.mark.usefixtures("hot_path", "rarity")

BROKEN = Image(b"\x89PNG\r\n\x1a\n")
PICTURE = Image(np.arange(60, dtype=np.uint8).reshape(4, 5, 3))
BOX = BoundingBox.corners(0.1, 0.6, 0.2, 0.9, "a", 0.5)
VALUES: list[Any] = [
    *(0, 7, -1, 300, 2**53 + 1, 2**63 - 1, 1.0, 2.5, 1e39, math.nan, math.inf, True),
    *("", "a", "1.5", "é😀", b"\xff", [], [1], [1, 2, 3], [1.5, 2, 3], [1e39], ["a", "b"], [[1, 2, 3]], [[1], [2, 3]]),
    *(np.ones(3, "f4"), np.full((1, 3), 0.1, "f4"), np.full((2, 3), 0.1), np.ones((0, 3), "f4"), np.array(2.0)),
    *(np.array([1, 2, 3]), np.array([1, 2, 300], "i2"), np.array([1, 2], "u1"), np.array([0.1, math.nan, 1], "f2")),
    *(PICTURE, BROKEN, [PICTURE], BOX, [BOX, BoundingBox.corners(0, math.nan, 0, 1)], [BOX], Point([1, 2])),
    *(Data({"a": 1}), TypedList(ValueType.BOUNDING_BOX)),
]


@pipelines.batched
def twice(batch: Batch) -> Batch:
    """A function on columns, as a user writes one."""
    return batch.select({"y": DenseColumn(batch["x"].array * 2.0)})


def switched() -> Pipeline:
    builder = pipelines.GraphBuilder()
    small, large = builder.input.switch("x", pipelines.IntSwitch(field_name="x", num_outputs=2))
    return builder.build(builder.any(small, large.then("other", lambda data: Data({"y": data["x"]}))))


def averaged() -> Pipeline:
    builder = pipelines.GraphBuilder()
    other = builder.input.then("other", lambda data: data)
    return builder.build(builder.combine(pipelines.Ensemble(weights=(0.7, 0.3)), other, builder.input))


MODELS: dict[str, tuple[int, list[Any]]] = {
    "floats": (T.FLOAT, ["N", 3]),
    "halves": (T.FLOAT16, ["N", "M"]),
    "integers": (T.INT64, ["N", "M"]),
    "texts": (T.STRING, ["N", 1]),
    "fixed": (T.FLOAT, [1, 3]),
}
STEPS: list[Step | Pipeline] = [
    *(pipelines.Onnx(name) for name in MODELS),
    pipelines.Features(["x", {"field": "z", "default": 0.5}], dtype="DOUBLE"),
    pipelines.Features(["x"], dtype="INT64", keep_other_values=False),
    pipelines.Features([{"field": "x", "default": 1}, "z"], columns=True),
    pipelines.Features([{"field": "x", "one_hot": ["a", 7, True], "unknown": "zeros"}]),
    pipelines.ClassifierOutput(input_name="x", labels=("a", "b"), all_probabilities=True),
    pipelines.RegressionOutput(input_name="x", names={"p": 0, "q": 1}),
    pipelines.YoloToBoundingBox(input="x", num_classes=2),
    pipelines.BoundingBoxFilter(input_name="x", classes_to_keep=("a",)),
    pipelines.BoundingBoxToPoint(bbox_name="x"),
    pipelines.ImageToNDArray(image_names=("x",), config={"height": 2, "width": 2, "listHandling": "BATCH"}),
    pipelines.ImageToNDArray(image_names=("x",), metadata=True),
    pipelines.ImageResize(input_names=("x",), width=3),
    pipelines.ImageCrop(image_name="x", crop_name="z", coords_are_pixels=False),
    pipelines.GrayScale(image_name="x"),
    pipelines.ExtractBoundingBox(image_name="x", bbox_name="z"),
    pipelines.DrawBoundingBox(image_name="x", bbox_name="z"),
    pipelines.Function(twice),
    pipelines.Function(lambda data: Data({"y": data["x"]})),
    switched(),
    averaged(),
]


def told(value: Any) -> Any:
    """A value as what can be compared: with its type, element type and shape, NaN and infinities, and pixels."""
    if isinstance(value, np.ndarray):
        return "array", value.dtype, value.shape, value.astype(str).tolist()
    if isinstance(value, Image):
        try:
            return "image", told(value.get_as("numpy"))
        except DataError:
            return "broken image", value.encoded
    if isinstance(value, list):
        return "list", [told(one) for one in value]
    if isinstance(value, Data):
        return "data", {key: told(one) for key, one in value.items()}, told(value.metadata)
    return type(value).__name__, repr(value)


def plain(value: Any) -> Any:
    """A value as plain JSON has it."""
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, list):
        return [plain(one) for one in value]
    if isinstance(value, Data):
        return {key: plain(one) for key, one in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (bool, int, float, str)) else None


WRITERS: dict[str, Callable[[Data], bytes]] = {
    "protodata": Data.to_bytes,
    "konduit-json": lambda data: data.to_json().encode(),
    "json": lambda data: json.dumps(plain(data)).encode(),
    "msgpack": lambda data: msgpack.packb(plain(data)),
}


def fates(executor: Any, batch: Batch) -> dict[int, Any]:
    result = executor.run_batch(batch)
    # The keys of a record have no order, and errors name them.
    found: dict[int, Any] = {
        row: ("failed", sorted(re.split("[ ,;]+", str(error)))) for row, error in result.failed.items()
    }
    for row, data in zip(result.rows.tolist(), result.batch.to_list(), strict=True):
        assert row not in found
        found[row] = told(data)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the models are: each gives back its input."""
    found = tmp_path_factory.mktemp("models")
    for name, (element, shape) in MODELS.items():
        x, y = (helper.make_tensor_value_info(end, element, shape) for end in "xy")
        graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), found / name)
    return found


RECORDS = st.lists(
    st.fixed_dictionaries({}, optional={"x": st.sampled_from(VALUES), "z": st.sampled_from(VALUES)}).map(Data),
    min_size=2,
    max_size=6,
)


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS, ids=itertools.count())
@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=examples(40))
@given(RECORDS, st.sampled_from([None, *WRITERS]), st.booleans())
def test_a_record_becomes_the_same_alone_and_among_others(
    step: Step | Pipeline, folder: Path, datas: list[Data], codec: str | None, early: bool
) -> None:
    pipeline = step if isinstance(step, Pipeline) else pipelines.Sequence([step], base=folder)
    with pipeline.open() as executor, pipeline.open() as another:
        wanted = executor.reads if early else frozenset()

        def batch(part: list[Data]) -> Batch:
            if codec is None:
                return Batch.of(part)
            return codec_of(codec).decode(block([WRITERS[codec](one) for one in part]), wanted).batch

        together = fates(executor, batch(datas))
        for row, data in enumerate(datas):
            alone = fates(another, batch([data]))
            fate, other = together.get(row), alone.get(0)
            # Of two faults either may be told.
            either = len(data) > 1 and fate is not None and other is not None and fate[0] == other[0] == "failed"
            assert either or fate == other, data
