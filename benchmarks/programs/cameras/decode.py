"""Decoding alone, by PyAV: the floor. `decode FILM`."""

from __future__ import annotations

import sys

import av

from benchmarks.programs.cameras.meter import Meter


def main() -> None:
    """Decode every picture and do nothing with it."""
    meter = Meter()
    with av.open(sys.argv[1]) as container:
        stream = container.streams.video[0]
        stream.thread_type = "AUTO"
        stream.codec_context.thread_count = 1
        for number, _ in enumerate(container.decode(stream), 1):
            meter.saw(number)
    meter.tell()


if __name__ == "__main__":
    main()
