"""The values of a request as tensors, and outputs as values."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines import Data
from pipelines.errors import DataError
from pipelines.executors.ports import Ports
from pipelines.runners.models.model import Port
from streamer.client.inputs import Inputs

F4 = np.dtype(np.float32)
PORTS = Ports((Port("x", F4, (None, 3)),), (), (Port("y", F4, (None, 2)), Port("all", F4, (1,))))


def test_only_outputs_that_have_the_axis_of_samples_lose_it() -> None:
    result = Inputs("it", PORTS).result({"y": np.zeros((1, 2), F4), "all": np.zeros((1, 2, 3), F4)}, single=True)
    assert {name: array.shape for name, array in result.items()} == {"y": (2,), "all": (1, 2, 3)}


@pytest.mark.parametrize(
    ("value", "shape"), [(np.zeros(3), [3]), ("text", [1]), (["a", "b"], [2]), (2.5, [1]), ([[1, 2], [3, 4]], [2, 2])]
)
def test_where_nothing_is_known_values_go_as_they_are(value: object, shape: list[int]) -> None:
    tensors = Inputs("it", Ports()).tensors(Data({"x": value}))
    assert list(tensors.arrays["x"].shape) == shape
    assert not tensors.single


def test_a_value_that_is_no_tensor_is_named() -> None:
    with pytest.raises(DataError, match='key "x" holds Data'):
        Inputs("it", Ports()).tensors(Data({"x": Data({"y": 1})}))
