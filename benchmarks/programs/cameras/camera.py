"""A camera to measure with: RTSP on this machine. `camera WIDTH HEIGHT FPS` prints its URL and ends with its input."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "tests" / "support"))

from rtspcamera import RtspCamera


def main() -> None:
    """Send pictures until the parent closes the other end of the input."""
    width, height, fps = map(int, sys.argv[1:4])
    with RtspCamera("h264", width, height, fps=fps) as camera:
        print(camera.url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
