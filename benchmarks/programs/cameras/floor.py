"""The service's work on a picture, in a loop without the service: the least that it can cost. `floor FILM MODEL`."""

from __future__ import annotations

import sys

import av
import numpy as np
import onnxruntime

from benchmarks.programs.cameras.meter import Meter
from pipelines import Image

SIDE = 320


def main() -> None:
    """Run every picture."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(sys.argv[2], options, providers=["CPUExecutionProvider"])
    meter = Meter()
    with av.open(sys.argv[1]) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        stream.codec_context.thread_count = 1
        for number, frame in enumerate(container.decode(stream), 1):
            values = np.empty((1, 3, SIDE, SIDE), np.float32)
            for channel, plane in zip(values[0], reversed(Image(frame).scaled_planes(SIDE, SIDE)), strict=True):
                channel[...] = plane
            values /= np.float32(255)
            session.run(None, {"picture": values})
            meter.saw(number)
    meter.tell()


if __name__ == "__main__":
    main()
