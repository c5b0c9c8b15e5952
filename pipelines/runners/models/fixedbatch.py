"""Models that state how many samples a call has: run on any number of them, in parts that are filled up."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from pipelines.observe.meters import Counter
from pipelines.observe.metrics import FILLED, StepMetrics
from pipelines.runners.models.model import Array, Model, Port

_log = logging.getLogger(__name__)


class FixedBatch:
    """A model whose calls have exactly `count` samples, as one that takes any number.

    More samples are cut into calls of `count`. The last call is filled up by repeating a sample, and what the model
    gives for those is cut off. The first axis of all `inputs` and `outputs` is open here.
    """

    def __init__(self, model: Model, count: int) -> None:
        self.count = count
        self._model = model
        self.inputs = [_opened(port) for port in model.inputs]
        self.outputs = [_opened(port) for port in model.outputs]
        self._filled: Counter | None = None

    def count_in(self, metrics: StepMetrics) -> None:
        """From now on, count the samples that calls are filled up with in the metrics of the model's step."""
        self._filled = metrics.counter(FILLED, "Samples that calls of a model of a fixed batch were filled up with.")

    @property
    def path(self) -> Path:
        """The model's file."""
        return self._model.path

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """The outputs for these inputs, `(total, ...)` each. The library's exceptions go through."""
        total = len(arrays[0])
        # No samples are one call too: outputs have types and shapes.
        starts = range(0, total, self.count) if total else (0,)
        if self._filled is not None:
            self._filled.add(len(starts) * self.count - total)
        parts = [
            self._model.run([_filled_up(array[start : start + self.count], self.count) for array in arrays])
            for start in starts
        ]
        joined = parts[0] if len(parts) == 1 else [np.concatenate(pieces) for pieces in zip(*parts, strict=True)]
        return [output[:total] if output.ndim else output for output in joined]

    def close(self) -> None:
        """Free the model."""
        self._model.close()


def of_any_count(model: Model) -> Model:
    """`model`, or a `FixedBatch` of it if its first axis is a batch of a fixed length above 1.

    It is one if all inputs and outputs begin with the same length, and a trial with made-up samples shows that what a
    sample gives does not depend on the others: the same lengths may be those of a matrix. An output that does not
    state its first length counts if the trial gives it that length.
    """
    count = stated_count(model)
    if count is None:
        return model
    stated = [port.shape[0] if port.shape else None for port in model.outputs]
    reason = _no_batch(model, count, trusted=all(length == count for length in stated))
    if reason is None:
        return FixedBatch(model, count)
    _log.info("%s: the first axis, of the length %d, is not a batch: %s", model.path, count, reason)
    return model


def stated_count(model: Model) -> int | None:
    """The length above 1 that all inputs, and all outputs that state it, begin with."""
    firsts = {port.shape[0] if port.shape else None for port in model.inputs}
    count = firsts.pop() if len(firsts) == 1 else None
    if not isinstance(count, int) or count < 2:
        return None
    outputs = [port.shape[0] for port in model.outputs if port.shape]
    return None if any(isinstance(length, int) and length != count for length in outputs) else count


def _no_batch(model: Model, count: int, *, trusted: bool) -> str | None:
    """Why the first axis is not the batch; `None` if it is. `trusted`: also if it does not take made-up samples."""
    random = np.random.default_rng(0)
    mixed = [_made_up(port, count, random) for port in model.inputs]
    alike = [np.repeat(array[:1], count, axis=0) for array in mixed]
    try:
        outputs, alone = model.run(mixed), model.run(alike)
    except Exception as error:  # noqa: BLE001 - made-up samples may be no input for this model
        return None if trusted else f"a trial failed ({error})"
    for port, output, same in zip(model.outputs, outputs, alone, strict=True):
        if not output.ndim or len(output) != count:
            return f'the output "{port.name}" has the shape {list(output.shape)}'
        if not _equal(output[0], same[0]):
            return f'"{port.name}" of one sample depends on the others'
    return None


def made_up(port: Port, shape: Sequence[int], random: np.random.Generator) -> Array:
    """Random values of the shape, for an input of a model."""
    if port.dtype.kind == "f":
        return random.random(shape).astype(port.dtype)
    # Nothing above 1, as integers are often positions in a table.
    bits = random.integers(0, 2, shape)
    return bits.astype(str).astype(object) if port.dtype == object else bits.astype(port.dtype)


def _made_up(port: Port, count: int, random: np.random.Generator) -> Array:
    inner = [length if isinstance(length, int) else 1 for length in (port.shape or ())[1:]]
    return made_up(port, (count, *inner), random)


def _equal(first: Array, second: Array) -> bool:
    if first.shape != second.shape:
        return False
    if first.dtype.kind in "fiub":
        return np.allclose(first.astype(np.float64), second.astype(np.float64), rtol=1e-2, atol=1e-5, equal_nan=True)
    return bool(np.all(first == second))


def _opened(port: Port) -> Port:
    return replace(port, shape=(None, *port.shape[1:])) if port.shape else port


def _filled_up(array: Array, count: int) -> Array:
    lacking = count - len(array)
    if not lacking:
        return array
    if len(array):
        return np.concatenate([array, np.repeat(array[-1:], lacking, axis=0)])
    return np.full((count, *array.shape[1:]), "" if array.dtype == object else 0, array.dtype)
