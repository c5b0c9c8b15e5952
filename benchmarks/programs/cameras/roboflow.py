"""Roboflow's InferencePipeline with the same model as its own logic. `roboflow FILM MODEL`."""

from __future__ import annotations

import sys
from typing import Any

import cv2
import onnxruntime
from inference import InferencePipeline

from benchmarks.programs.cameras.meter import Meter

SIDE = 320


def main() -> None:
    """Run every picture."""
    cv2.setNumThreads(1)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(sys.argv[2], options, providers=["CPUExecutionProvider"])
    meter = Meter()

    def run(frames: list[Any]) -> list[Any]:
        blobs = [cv2.dnn.blobFromImage(cv2.resize(frame.image, (SIDE, SIDE)), 1 / 255, swapRB=True) for frame in frames]
        return [session.run(None, {"picture": blob}) for blob in blobs]

    def seen(results: Any, frames: Any) -> None:
        meter.saw(meter.count + 1)

    pipeline = InferencePipeline.init_with_custom_logic(
        video_reference=sys.argv[1], on_video_frame=run, on_prediction=seen
    )
    pipeline.start()
    pipeline.join()
    meter.tell()


if __name__ == "__main__":
    main()
