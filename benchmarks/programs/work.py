"""The work between the buses as one would write it by hand: protobuf, numpy, onnxruntime, protobuf.

The baseline and the programs of other frameworks share it, so that they differ in the framework only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnxruntime as ort
from google.protobuf.message import DecodeError

from benchmarks.programs.job import Job
from protos import data_pb2 as pb

STRING, INT64, FLOAT = pb.DataScheme.STRING, pb.DataScheme.INT64, pb.NDArray.FLOAT


class Work:
    """Reads payloads, runs the model once on all of them, writes results."""

    def __init__(self, job: Job) -> None:
        self._session = opened(job.model)
        self._keep = job.keep
        self._bytes = 4 * job.floats

    def run(self, payloads: Sequence[bytes | None]) -> list[bytes | None]:
        """One result for each payload, `None` where it is broken or its array has another size."""
        arrays: list[np.ndarray[tuple[int], np.dtype[np.float32]]] = []
        devices: list[str] = []
        stamps: list[int] = []
        broken: list[int] = []
        for index, payload in enumerate(payloads):
            try:
                items = pb.DataMap.FromString(payload or b"").mapItems
                raw = items["x"].ndValue.array[0]
                if len(raw) != self._bytes:
                    raise ValueError(f"{len(raw)} bytes instead of {self._bytes}")
            except (DecodeError, IndexError, ValueError):
                broken.append(index)
                continue
            arrays.append(np.frombuffer(raw, "<f4"))
            if self._keep:
                devices.append(items["device_id"].sValue)
                stamps.append(items["ts"].iValue)
        results: list[bytes | None] = []
        if arrays:
            outputs = self._session.run(_OUTPUTS, {"x": np.stack(arrays)})[0]
            results.extend(self._kept(outputs, devices, stamps) if self._keep else self._bare(outputs))
        for index in broken:
            results.insert(index, None)
        return results

    def run_one(self, payload: bytes) -> bytes | None:
        """The result of one payload, for frameworks that hand them over one by one; `None` if it is broken."""
        try:
            items = pb.DataMap.FromString(payload).mapItems
            raw = items["x"].ndValue.array[0]
            if len(raw) != self._bytes:
                raise ValueError(f"{len(raw)} bytes instead of {self._bytes}")
        except (DecodeError, IndexError, ValueError):
            return None
        outputs = self._session.run(_OUTPUTS, {"x": np.frombuffer(raw, "<f4").reshape(1, -1)})[0]
        if not self._keep:
            return self._bare(outputs)[0]
        return self._kept(outputs, [items["device_id"].sValue], [items["ts"].iValue])[0]

    def _kept(
        self, outputs: np.ndarray[tuple[int, int], np.dtype[np.float32]], devices: list[str], stamps: list[int]
    ) -> list[bytes]:
        found = []
        shape = outputs.shape[1:]
        for output, device, stamp in zip(outputs, devices, stamps, strict=True):
            result = pb.DataMap()
            items = result.mapItems
            array = items["y"].ndValue
            array.shape.extend(shape)
            array.type = FLOAT
            array.array.append(output.tobytes())
            scheme = items["device_id"]
            scheme.sValue = device
            scheme.type = STRING
            scheme = items["ts"]
            scheme.iValue = stamp
            scheme.type = INT64
            found.append(result.SerializeToString())
        return found

    def _bare(self, outputs: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> list[bytes]:
        found = []
        shape = outputs.shape[1:]
        for output in outputs:
            result = pb.DataMap()
            array = result.mapItems["y"].ndValue
            array.shape.extend(shape)
            array.type = FLOAT
            array.array.append(output.tobytes())
            found.append(result.SerializeToString())
        return found


def opened(model: str) -> ort.InferenceSession:
    """The model, with one thread that waits without spinning."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


_OUTPUTS = ["y"]
