"""Size and time of a record's forms: `python -m benchmarks.forms`, with `--write` into the README.

A Data with one array, `(224, 224, 3)` float32: the protobuf form, our JSON (base64), and a list of numbers, as without
a form for arrays. CPU milliseconds, the least of many runs in turn.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from benchmarks.pages import machine, put
from pipelines import Data

SECONDS = 3.0
"""How long each form is measured."""

Payload = bytes | str


class Form(NamedTuple):
    """A way to write a record and to read it."""

    name: str
    write: Callable[[], Payload]
    read: Callable[[Payload], object]


def main() -> None:
    """Print a table, a form a line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.forms", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long each form is measured")
    parser.add_argument("--write", action="store_true", help="put the table into benchmarks/README.md")
    given = parser.parse_args()
    began = time.monotonic()
    array = np.random.default_rng(7).random((224, 224, 3), np.float32)
    found = table(forms(array), array.nbytes, given.seconds)
    print(found)
    if given.write:
        minutes = (time.monotonic() - began) / 60
        put("forms", f"{machine(minutes, packages=('numpy', 'protobuf'))}\n\n{found}")


def forms(array: np.ndarray) -> list[Form]:
    """The forms of a record with this array."""
    data = Data({"image": array})
    return [
        Form("protobuf", data.to_bytes, lambda text: Data.from_bytes(text)),  # type: ignore[arg-type]
        Form("JSON", data.to_json, lambda text: Data.from_json(text)),
        Form(
            "JSON, a list of numbers",
            lambda: json.dumps({"image": array.tolist()}),
            lambda text: np.array(json.loads(text)["image"], np.float32),
        ),
    ]


def table(forms: list[Form], raw: int, seconds: float) -> str:
    """The table in Markdown; the others are compared with the first form."""
    lines = [
        "| form | bytes / the array's | write, ms | read, ms | read / protobuf |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    first = None
    for form in forms:
        payload = form.write()
        write, read = least(form.write, seconds / 2), least(lambda: form.read(payload), seconds / 2)  # noqa: B023
        first = first or read
        lines.append(f"| {form.name} | {len(payload) / raw:.2f} | {write:.2f} | {read:.2f} | {read / first:,.0f} |")
    return "\n".join(lines)


def least(run: Callable[[], object], seconds: float) -> float:
    """CPU milliseconds of the cheapest run within so long."""
    best = float("inf")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.process_time_ns()
        run()
        best = min(best, (time.process_time_ns() - began) / 1e6)
    return best


if __name__ == "__main__":
    main()
