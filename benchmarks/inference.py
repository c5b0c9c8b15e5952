"""The cost of requests of the Open Inference Protocol by themselves: `python -m benchmarks.inference`.

CPU microseconds a request on one core (`time.process_time`, the best of many runs, all forms in turn), to read it and
to write its answer, in plain Python and compiled, beside code written by hand. A request brings the float32 array `x`,
of 64 numbers or of a picture; the answer has the float32 array `y` of 10 numbers.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.codec import Form, measured
from connectors.codec import Codec
from connectors.codecs.inference import wire
from connectors.codecs.inference.config import InferenceConfig
from connectors.records import Header, Lane, Records, Span
from connectors.source import Served
from pipelines import hotpath
from pipelines.data.batch import Batch
from pipelines.data.columns import DenseColumn
from pipelines.executors.ports import Ports
from pipelines.hotpath import HotPath, choosing
from pipelines.runners.models.model import Port
from protos import open_inference_pb2 as pb

VECTOR, PICTURE = (64,), (3, 224, 224)
SECONDS = 2.0
"""How long each case is measured."""


class Sent(NamedTuple):
    """A request in one form."""

    body: bytes
    headers: list[Header]


def main() -> None:
    """Print the cost of each form of a request, in batches of 32 and alone."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inference", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each case is measured")
    seconds = parser.parse_args().seconds
    for rows in (32, 1):
        _print(f"64 numbers, batch {rows}", measured(_forms(VECTOR, rows), rows, seconds))
    picture = measured(_forms(PICTURE, 1), 1, seconds)
    _print("1x3x224x224, alone", picture)
    for path in _paths():
        ratio = picture[f"read json, {path}"] / picture[f"read binary, {path}"]
        print(f"reading a picture in binary costs 1/{ratio:.0f} of reading it in JSON ({path})")


def _paths() -> Sequence[HotPath]:
    return ("python", "native") if hotpath.why_not() is None else ("python",)


def _forms(shape: tuple[int, ...], rows: int) -> dict[str, Form]:
    array = np.random.default_rng(7).standard_normal((1, *shape)).astype(np.float32)
    text, _ = wire.write_request({"x": array}, binary=False)
    binary, length = wire.write_request({"x": array})
    message = wire.write_message("model", {"x": array})
    others: list[Header] = [("host", b"127.0.0.1:8000"), ("user-agent", b"benchmark"), ("content-length", b"300")]
    sent = {
        "json": Sent(text, others),
        "binary": Sent(binary, [*others, (wire.HEADER_LENGTH, b"%d" % (length or 0))]),
        "grpc": Sent(message, [("content-type", b"application/grpc")]),
    }
    forms: dict[str, Form] = {
        "read json, by hand": lambda: [
            np.array(json.loads(text)["inputs"][0]["data"], np.float32) for _ in range(rows)
        ],
        "read grpc, by hand": lambda: [
            np.frombuffer(pb.ModelInferRequest.FromString(message).raw_input_contents[0], np.float32)
            for _ in range(rows)
        ],
    }
    results = DenseColumn(np.random.default_rng(7).standard_normal((rows, 1, 10)).astype(np.float32))
    for path in _paths():
        codec = _codec(path, shape)
        for name, request in sent.items():
            records = _records(request, rows)
            decoded = codec.decode(records, None)
            assert not decoded.failed
            batch = Batch({"y": results}, rows, rows=decoded.batch.row_numbers, origin=decoded.batch.origin)
            forms[f"read {name}, {path}"] = _reading(codec, records)
            forms[f"answer {name}, {path}"] = _answering(codec, batch)
    return forms


def _reading(codec: Codec, records: Records) -> Callable[[], object]:
    return lambda: codec.decode(records, None)


def _answering(codec: Codec, batch: Batch) -> Callable[[], object]:
    return lambda: codec.encode(batch)


def _codec(path: HotPath, shape: tuple[int, ...]) -> Codec:
    with choosing(path):
        codec = InferenceConfig().build()
    codec.serves(Served("model", Ports((Port("x", np.dtype(np.float32), (None, *shape)),))))
    return codec


def _records(request: Sent, rows: int) -> Records:
    return Records(
        "http",
        [request.body] * rows,
        None,
        np.arange(rows),
        [Span(Lane("http", "0", 0), 0, rows)],
        ["model"],
        [0],
        rows * len(request.body),
        headers=lambda: [request.headers] * rows,
    )


def _print(title: str, costs: dict[str, float]) -> None:
    print(f"\n{title}: CPU us a request")
    for name, cost in costs.items():
        print(f"  {name:24} {cost:10.2f}")


if __name__ == "__main__":
    main()
