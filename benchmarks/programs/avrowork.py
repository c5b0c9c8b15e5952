"""The work between the buses on Avro, as one would write it by hand: fastavro, numpy, onnxruntime, fastavro."""

from __future__ import annotations

import io
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.programs.job import Job
from benchmarks.programs.work import opened

_OUTPUTS = ["y"]
_KEPT = [{"name": "device_id", "type": "string"}, {"name": "ts", "type": "long"}]
RESULT: dict[str, Any] = {
    "type": "record",
    "name": "Result",
    "fields": [{"name": "y", "type": {"type": "array", "items": "float"}}, *_KEPT],
}
"""The schema of results."""


def record_schema(features: Sequence[str]) -> dict[str, Any]:
    """The schema of records with these numbers."""
    return {
        "type": "record",
        "name": "Record",
        "fields": [*_KEPT, *({"name": one, "type": "double"} for one in features)],
    }


class AvroWork:
    """Reads payloads, runs the model once on all of them, writes results."""

    def __init__(self, job: Job) -> None:
        self._session = opened(job.model)
        self._features = list(job.features)
        # Only this program needs it.
        fastavro: Any = import_module("fastavro")
        self._read, self._write = fastavro.schemaless_reader, fastavro.schemaless_writer
        self._record = fastavro.parse_schema(record_schema(job.features))
        self._result = fastavro.parse_schema(RESULT)

    def run(self, payloads: Sequence[bytes | None]) -> list[bytes | None]:
        """One result for each payload, `None` where it is broken."""
        read, write, schema, features = self._read, self._write, self._record, self._features
        rows: list[list[float]] = []
        records: list[dict[str, Any]] = []
        broken: list[int] = []
        for index, payload in enumerate(payloads):
            try:
                record = read(io.BytesIO(payload or b""), schema)
            except (EOFError, IndexError, ValueError):
                broken.append(index)
                continue
            rows.append([record[key] for key in features])
            records.append(record)
        results: list[bytes | None] = []
        if rows:
            outputs = self._session.run(_OUTPUTS, {"x": np.array(rows, np.float32)})[0]
            for record, output in zip(records, outputs.tolist(), strict=True):
                written = io.BytesIO()
                write(written, self._result, {"y": output, "device_id": record["device_id"], "ts": record["ts"]})
                results.append(written.getvalue())
        for index in broken:
            results.insert(index, None)
        return results
