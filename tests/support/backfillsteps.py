"""Functions of pipelines in tests of backfills."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

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


def unending(data: Data) -> Data:
    """Nothing for minutes, once it has made the file `begun`."""
    Path("begun").touch()
    time.sleep(300)
    return data


class DeadlyJob:
    """A job that ends each process that opens it."""

    def open(self) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)
