"""The baseline, written by hand: PyAV, one scaler that is shared, numpy, `session.run`. `handwritten FILM MODEL`."""

from __future__ import annotations

import sys

import av
import numpy as np
import onnxruntime
from av.video.reformatter import Interpolation, VideoReformatter

from benchmarks.programs.cameras.meter import Meter

SIDE = 320


def main() -> None:
    """Run every picture."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(sys.argv[2], options, providers=["CPUExecutionProvider"])
    meter, scaler = Meter(), VideoReformatter()
    with av.open(sys.argv[1]) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        stream.codec_context.thread_count = 1
        for number, frame in enumerate(container.decode(stream), 1):
            small = scaler.reformat(
                frame, SIDE, SIDE, format="rgb24", interpolation=Interpolation.FAST_BILINEAR, threads=1
            )
            pixels = small.to_ndarray().transpose(2, 0, 1)[np.newaxis]
            session.run(None, {"picture": np.multiply(pixels, np.float32(1 / 255), dtype=np.float32)})
            meter.saw(number)
    meter.tell()


if __name__ == "__main__":
    main()
