"""Functions of pipelines in tests of backfills."""

from __future__ import annotations

import os
import signal
import time

from pipelines import Data


def size(data: Data) -> Data:
    """The width of an image."""
    return Data({"width": data["image"].width})


def doubled(data: Data) -> Data:
    """Twice `x`, after some time. Below 0 the process dies, at 100 or more the record fails."""
    time.sleep(data["id"] % 7 * 0.0005)
    if data["x"] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if data["x"] >= 100:
        raise ValueError(f"{data['x']} is too much")
    return Data({"y": data["x"] * 2})
