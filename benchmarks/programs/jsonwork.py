"""The work between the buses on plain JSON, as one would write it by hand: orjson, numpy, onnxruntime, orjson."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.programs.job import Job
from benchmarks.programs.work import opened

_OUTPUTS = ["y"]


class JsonWork:
    """Reads payloads, runs the model once on all of them, writes results."""

    def __init__(self, job: Job) -> None:
        self._session = opened(job.model)
        self._features = list(job.features)
        self._floats = job.floats
        # Only this program needs it.
        orjson: Any = import_module("orjson")
        self._loads, self._dumps = orjson.loads, orjson.dumps

    def run(self, payloads: Sequence[bytes | None]) -> list[bytes | None]:
        """One result for each payload, `None` where it is broken or its array has another size."""
        loads, dumps, features = self._loads, self._dumps, self._features
        rows: list[list[float]] = []
        records: list[dict[str, Any]] = []
        broken: list[int] = []
        for index, payload in enumerate(payloads):
            try:
                record = loads(payload or b"")
                row = [record[key] for key in features] if features else record["x"]
                if len(row) != self._floats:
                    raise ValueError(f"{len(row)} numbers instead of {self._floats}")
            except (KeyError, TypeError, ValueError):
                broken.append(index)
                continue
            rows.append(row)
            records.append(record)
        results: list[bytes | None] = []
        if rows:
            outputs = self._session.run(_OUTPUTS, {"x": np.array(rows, np.float32)})[0]
            for record, output in zip(records, outputs.tolist(), strict=True):
                results.append(dumps({"y": output, "device_id": record["device_id"], "ts": record["ts"]}))
        for index in broken:
            results.insert(index, None)
        return results
