from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

import pipelines
from pipelines import Data
from pipelines.errors import blamed
from pipelines.outofmemory import is_out_of_memory


def watched(arrays: list[weakref.ref[Any]]) -> np.ndarray[Any, Any]:
    array = np.zeros(10)
    arrays.append(weakref.ref(array))
    return array


def fail(kind: str, left: object) -> None:
    """Raise an error, with `left` in a local variable."""
    try:
        raise MemoryError
    except MemoryError as error:
        if kind == "cause":
            raise ValueError("no room") from error
        if kind == "context":
            raise ValueError("no room")  # noqa: B904
        raise


@pytest.mark.parametrize("kind", ["MemoryError", "cause", "context"])
@pytest.mark.parametrize("batched", [False, True])
def test_what_a_record_took_is_free_when_the_next_one_runs(kind: str, batched: bool) -> None:
    arrays: list[weakref.ref[Any]] = []
    alive: list[int] = []

    def eat(data: Data) -> Data:
        alive.append(sum(array() is not None for array in arrays))
        if data["x"] == 0:
            data["more"] = watched(arrays)
            fail(kind, watched(arrays))
        return data

    @pipelines.batched
    def eat_together(batch: pipelines.Batch) -> pipelines.Batch:
        alive.append(sum(array() is not None for array in arrays))
        if 0 in batch["x"].values():
            fail(kind, watched(arrays))
        return batch

    with pipelines.Sequence([pipelines.Function(eat_together if batched else eat)]).open() as executor:
        first, *others = executor.run_many([Data({"x": x}) for x in range(3)])
    assert isinstance(first, pipelines.StepError)
    assert first.__traceback__ is not None or first.__cause__ is not None
    assert others == [Data({"x": 1}), Data({"x": 2})]
    assert not any(alive)
    assert not any(array() is not None for array in arrays)


def test_variables_of_other_errors_stay_to_be_looked_at() -> None:
    arrays: list[weakref.ref[Any]] = []
    with pytest.raises(ZeroDivisionError) as raised:
        fail_otherwise(watched(arrays))
    assert blamed(raised.value) is raised.value
    assert arrays[0]() is not None


def fail_otherwise(left: object) -> float:
    return 1 / 0


@pytest.mark.parametrize(
    ("module", "text", "expected"),
    [
        ("onnxruntime.capi", "FAIL : Failed to allocate memory for requested buffer of size 1600000000", True),
        ("onnxruntime.capi", "RUNTIME_EXCEPTION : std::bad_alloc", True),
        ("onnxruntime.capi", "INVALID_ARGUMENT : Got invalid dimensions for input", False),
        ("cv2", "(-4:Insufficient memory) Failed to allocate 1200000000 bytes", True),
        ("mine", "could not allocate a number", False),
    ],
)
def test_errors_of_libraries_count_if_they_say_that_an_allocation_failed(
    module: str, text: str, expected: bool
) -> None:
    kind = type("Fail", (Exception,), {"__module__": module})
    assert is_out_of_memory(kind(text)) is expected
