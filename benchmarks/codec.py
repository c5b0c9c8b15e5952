"""The cost of decoding and encoding by themselves: `python -m benchmarks.codec`.

CPU microseconds a message on one core (`time.process_time`, the best of many runs, all forms in turn), for messages
of the keys `x` (float32 array), `device_id` (string) and `ts` (int64). A step reads `x`, and its result goes out with
`device_id` and `ts`. Ours, in plain Python and compiled, is compared with code written by hand with protobuf and
numpy. The compiled form is measured with messages in a list and, as its Kafka source delivers them, in one buffer.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import random
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from pipelines import hotpath
from pipelines.data.batch import Batch
from pipelines.data.columns import DenseColumn
from pipelines.data.spans import Spans
from pipelines.errors import WireError
from pipelines.hotpath import choosing
from pipelines.wire.columns import ColumnsWriter, columns_reader, columns_writer, decode_columns
from pipelines.wire.protobuf import decode, encode_entry
from protos import data_pb2 as pb

Form = Callable[[], object]


class Case(NamedTuple):
    """One kind of batch."""

    floats: int
    rows: int
    poison: bool = False
    orders: int = 1

    @property
    def name(self) -> str:
        """How the table calls it."""
        notes = [f"{self.orders} key orders"] * (self.orders > 1) + ["1 % poison"] * self.poison
        return ", ".join([f"{self.floats} floats", f"batch {self.rows}", *notes])


CASES = [
    *(Case(floats, rows) for floats in (32, 784) for rows in (512, 64, 8)),
    Case(32, 512, poison=True),
    Case(32, 512, orders=2),
]
SECONDS = 1.0
"""How long each case is measured."""


def main() -> None:
    """Print a table for decoding and one for encoding."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.codec", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each case is measured")
    seconds = parser.parse_args().seconds
    _print("decode", {case.name: measured(_decoding(case), case.rows, seconds) for case in CASES})
    plain = [case for case in CASES if not case.poison and case.orders == 1]
    _print("encode", {case.name: measured(_encoding(case), case.rows, seconds) for case in plain})
    if (reason := hotpath.why_not()) is not None:
        print(f"The compiled hot path was not measured: {reason}")


def measured(forms: Mapping[str, Form], rows: int, seconds: float) -> dict[str, float]:
    """CPU microseconds a row of each form: the best of all rounds, in each of which every form has its turn."""
    repeats = {name: _repeats(form) for name, form in forms.items()}
    best = dict.fromkeys(forms, float("inf"))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, form in forms.items():
            gc.collect(0)
            began = time.process_time_ns()
            for _ in range(repeats[name]):
                form()
            best[name] = min(best[name], (time.process_time_ns() - began) / repeats[name])
    return {name: nanoseconds / rows / 1000 for name, nanoseconds in best.items()}


def _repeats(form: Form) -> int:
    form()
    began = time.process_time_ns()
    form()
    return max(1, 500_000 // max(1, time.process_time_ns() - began))


def _decoding(case: Case) -> dict[str, Form]:
    messages = _messages(case)
    spans = Spans.of(messages)
    x, every = frozenset({"x"}), frozenset({"x", "device_id", "ts"})
    assert np.array_equal(_array(decode_columns(messages, x)), _by_hand(messages, case.floats)[0])
    read = choosing("python")(columns_reader)()
    forms: dict[str, Form] = {
        "FromString alone": lambda: [_parsed(message) for message in messages],
        "by hand, np.stack": lambda: _by_hand(messages, case.floats),
        "to Data, one by one": lambda: [_data(message) for message in messages],
        "columns, x wanted": lambda: read(messages, x),
        "columns, all wanted": lambda: read(messages, every),
    }
    if hotpath.why_not() is None:
        compiled = choosing("native")(columns_reader)()
        forms |= {
            "compiled, x, list": lambda: compiled(messages, x),
            "compiled, x": lambda: compiled(spans, x),
            "compiled, all": lambda: compiled(spans, every),
        }
    return forms


def _encoding(case: Case) -> dict[str, Form]:
    forms: dict[str, Form] = {}
    for path in ("native", "python") if hotpath.why_not() is None else ("python",):
        # Each writes the columns that it has read: strings, for example, are spans or a list.
        found = choosing(path)(columns_reader)()(Spans.of(_messages(case)), frozenset({"x"}))
        batch = Batch({**found.columns, "y": DenseColumn(_array(found))}, case.rows).without(["x"])
        decoded = Batch({key: column.decoded() for key, column in batch.columns.items()}, case.rows)
        ids, stamps, y = (decoded[key].values() for key in ("device_id", "ts", "y"))
        forms |= _writing(
            "columns" if path == "python" else "compiled", choosing(path)(columns_writer)(), batch, decoded
        )
    by_hand: Form = lambda: [_message(y[row], ids[row], stamps[row]) for row in range(case.rows)]  # noqa: E731
    return {"by hand": by_hand, **dict(reversed(forms.items()))}


def _writing(name: str, write: ColumnsWriter, batch: Batch, decoded: Batch) -> dict[str, Form]:
    return {f"{name}, all made": lambda: write(decoded), f"{name}, two kept": lambda: write(batch)}


def _messages(case: Case) -> list[bytes]:
    rng = random.Random(7)
    arrays = np.random.default_rng(7).standard_normal((case.rows, case.floats)).astype(np.float32)
    orders = list(itertools.permutations(range(3)))[:: 5 if case.orders > 1 else 6]
    messages = []
    for row, array in enumerate(arrays):
        entries = [
            encode_entry("x", array),
            encode_entry("device_id", f"sensor-{rng.randrange(100_000)}"),
            encode_entry("ts", 1_760_000_000_000_000 + rng.randrange(10**9)),
        ]
        message = b"".join(entries[place] for place in orders[row % len(orders)])
        messages.append(message[:-1] if case.poison and row % 100 == 7 else message)
    return messages


def _parsed(message: bytes) -> pb.DataMap | None:
    try:
        return pb.DataMap.FromString(message)
    except DecodeError:
        return None


def _data(message: bytes) -> Any:
    try:
        return decode(message)
    except WireError as error:
        return error


def _by_hand(messages: list[bytes], floats: int) -> tuple[npt.NDArray[np.float32], list[str], list[int]]:
    arrays, ids, stamps = [], [], []
    for message in messages:
        try:
            items = pb.DataMap.FromString(message).mapItems
        except DecodeError:
            continue
        array = items["x"].ndValue
        buffer = array.array[0]
        if array.type != pb.NDArray.FLOAT or len(buffer) != 4 * floats:
            continue
        arrays.append(np.frombuffer(buffer, np.float32))
        ids.append(items["device_id"].sValue)
        stamps.append(items["ts"].iValue)
    return np.stack(arrays), ids, stamps


def _message(y: npt.NDArray[np.float32], device: str, stamp: int) -> bytes:
    message = pb.DataMap()
    array = message.mapItems["y"].ndValue
    array.shape.append(len(y))
    array.type = pb.NDArray.FLOAT
    array.array.append(y.tobytes())
    kept = message.mapItems["device_id"]
    kept.sValue, kept.type = device, pb.DataScheme.STRING
    kept = message.mapItems["ts"]
    kept.iValue, kept.type = stamp, pb.DataScheme.INT64
    return message.SerializeToString()


def _array(found: Any) -> npt.NDArray[Any]:
    column = found.columns["x"]
    assert isinstance(column, DenseColumn)
    return column.array


def _print(title: str, table: Mapping[str, Mapping[str, float]]) -> None:
    names = list(next(iter(table.values())))
    width = max(map(len, table))
    print(f"{title}, CPU us a message".ljust(width), *names, sep="  ")
    for case, costs in table.items():
        print(case.ljust(width), *(f"{costs[name]:.2f}".rjust(len(name)) for name in names), sep="  ")
    print()


if __name__ == "__main__":
    main()
