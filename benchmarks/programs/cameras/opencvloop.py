"""The loop of most examples: `read`, `resize`, `blobFromImage`, `session.run`. `opencvloop FILM MODEL`."""

from __future__ import annotations

import sys

import cv2
import onnxruntime

from benchmarks.programs.cameras.meter import Meter

SIDE = 320


def main() -> None:
    """Run every picture."""
    cv2.setNumThreads(1)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(sys.argv[2], options, providers=["CPUExecutionProvider"])
    meter = Meter()
    video = cv2.VideoCapture(sys.argv[1], cv2.CAP_FFMPEG, [cv2.CAP_PROP_N_THREADS, 1])
    number = 0
    while True:
        found, picture = video.read()
        if not found:
            break
        small = cv2.resize(picture, (SIDE, SIDE))
        session.run(None, {"picture": cv2.dnn.blobFromImage(small, 1 / 255, swapRB=True)})
        number += 1
        meter.saw(number)
    meter.tell()


if __name__ == "__main__":
    main()
