"""What a pipeline on Arrow record batches costs: `python -m benchmarks.arrow`, a minute.

CPU microseconds a record, all threads counted, least of several rounds in which the forms take turns: other work of the
machine can only add. The digits pipeline, pictures of 8 x 8 in record batches of 1,024, of which a label, its
probability and the number of the record come out.

- model: the call of the model alone, on an array that is there
- by hand: the same job in code on Arrow's buffers and numpy
- ours: `pipelines.arrow.mapper`
- pandas: the same job as it is usually written in a pandas function of an engine: frames, a list in each cell
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.arrow import mapper
from pipelines.telemetry import import_onnxruntime

DIGITS: Final = Path(__file__).parents[1] / "examples" / "digits"
RECORDS: Final = 64 * 1024
BATCH: Final = 1024
ROUNDS: Final = 5
BY_HAND: Final = 1.8
"""The ratio of ours to code by hand that is to be reached at most."""
PANDAS: Final = 0.3
LABELS: Final = [str(digit) for digit in range(10)]


class Cost(NamedTuple):
    """CPU microseconds a record of a form."""

    name: str
    microseconds: float


def record_batches(count: int) -> list[Any]:
    """Record batches of so many pictures."""
    with np.load(DIGITS / "digits.npz") as data:
        images = np.resize(data["images"], (count, 8, 8))
    column = pa.FixedShapeTensorArray.from_numpy_ndarray(images)
    whole = pa.record_batch({"id": pa.array(range(count)), "image": column})
    return [whole.slice(start, BATCH) for start in range(0, count, BATCH)]


def session() -> Any:
    """The model, with one thread."""
    onnxruntime = import_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(DIGITS / "digits.onnx", options, providers=["CPUExecutionProvider"])


def forms(batches: Sequence[Any]) -> dict[str, Callable[[], object]]:
    """What is measured, each on all batches."""
    model = session()
    arrays = [batch.column("image").to_numpy_ndarray() for batch in batches]
    texts = pa.array(LABELS)
    f = mapper(DIGITS / "digits.pipeline.yaml", keep=["id"])

    def alone() -> None:
        for array in arrays:
            model.run(None, {"image": array})

    def by_hand() -> list[Any]:
        results = []
        for batch in batches:
            (probabilities,) = model.run(None, {"image": batch.column("image").to_numpy_ndarray()})
            index = probabilities.argmax(axis=1)
            prob = probabilities[np.arange(len(index)), index].astype(np.float64)
            columns = {
                "id": batch.column("id"),
                "probabilities": pa.FixedSizeListArray.from_arrays(pa.array(probabilities.ravel()), 10),
                "prob": pa.array(prob),
                "label": texts.take(pa.array(index)),
            }
            results.append(pa.record_batch(columns))
        return results

    return {"model": alone, "by hand": by_hand, "ours": lambda: list(f(batches))}


def by_pandas(batches: Sequence[Any]) -> Callable[[], object] | None:
    """The job as it is usually written; `None` where pandas is not installed."""
    try:
        import pandas as pd
    except ImportError:
        return None
    model = session()
    lists = [batch.set_column(1, "image", batch.column("image").storage) for batch in batches]

    def with_frames() -> list[Any]:
        results = []
        for batch in lists:
            frame = batch.to_pandas()
            images = np.stack([np.array(image, dtype=np.uint8).reshape(8, 8) for image in frame["image"]])
            (probabilities,) = model.run(None, {"image": images})
            index = probabilities.argmax(axis=1)
            result = pd.DataFrame(
                {
                    "id": frame["id"],
                    "probabilities": [row.tolist() for row in probabilities],
                    "prob": probabilities.max(axis=1).astype(float),
                    "label": [LABELS[place] for place in index],
                }
            )
            results.append(pa.RecordBatch.from_pandas(result))
        return results

    return with_frames


def measured(count: int, rounds: int) -> list[Cost]:
    """The cost of each form; those with frames run on fewer records, as they take long."""
    batches = record_batches(count)
    all_forms: dict[str, tuple[Callable[[], object], int]] = {
        name: (form, count) for name, form in forms(batches).items()
    }
    few = batches[: max(1, len(batches) // 8)]
    frames = by_pandas(few)
    if frames is not None:
        all_forms["pandas"] = (frames, sum(batch.num_rows for batch in few))
    least = dict.fromkeys(all_forms, float("inf"))
    for _ in range(rounds + 1):
        for name, (form, records) in all_forms.items():
            began = time.process_time()
            form()
            least[name] = min(least[name], (time.process_time() - began) / records * 1e6)
    return [Cost(name, microseconds) for name, microseconds in least.items()]


def main() -> None:
    """Print a line for each form, and the ratios that count."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.arrow", description=__doc__)
    parser.add_argument("--records", type=int, default=RECORDS, help="how many records")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each form is measured")
    given = parser.parse_args()
    costs = {cost.name: cost.microseconds for cost in measured(given.records, given.rounds)}
    print("form       CPU us a record")
    for name, microseconds in costs.items():
        print(f"{name:10} {microseconds:15.3f}")
    print(f"ours is {costs['ours'] / costs['by hand']:.2f} of code by hand (at most {BY_HAND})")
    if "pandas" in costs:
        print(f"ours is {costs['ours'] / costs['pandas']:.2f} of pandas (at most {PANDAS})")
    else:
        print("pandas is not installed")


if __name__ == "__main__":
    main()
