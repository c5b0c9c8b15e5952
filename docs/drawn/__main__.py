"""Write the pictures anew: `PYTHONPATH=docs python -m drawn`, or only some: `... -m drawn camera-page`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from drawn import (
    batchtimeline,
    boardpicture,
    camerapage,
    dashboardpage,
    deadletter,
    demoscreen,
    fansrun,
    fansscreen,
    objectspage,
    sensorscores,
)
from streamer.devbroker import open_broker

FOLDER: Final = Path(__file__).parents[1] / "pictures"


def fans(folder: Path) -> list[Path]:
    """Run the service of fans, and draw what a terminal showed and the life of its dead letter."""
    with tempfile.TemporaryDirectory() as place, open_broker("the pictures") as broker:
        run = fansrun.run(Path(place), broker.bootstrap)
    return [*fansscreen.write(folder, run), *deadletter.write(folder, run)]


def batch_timeline(folder: Path) -> list[Path]:
    """Run the digits service, and draw the times of its batches."""
    with open_broker("the pictures") as broker:
        return batchtimeline.write(folder, broker.bootstrap)


def dashboard(folder: Path) -> list[Path]:
    """Run the digits service, and photograph its dashboard."""
    with open_broker("the pictures") as broker:
        return dashboardpage.write(folder, broker.bootstrap)


PICTURES: Final[Mapping[str, Callable[[Path], list[Path]]]] = {
    "camera-page": camerapage.write,
    "objects-page": objectspage.write,
    "dashboard": dashboard,
    "demo": demoscreen.write,
    "fans": fans,
    "batch-timeline": batch_timeline,
    "grafana-board": boardpicture.write,
    "sensor-scores": sensorscores.write,
}


def main() -> int:
    """Write the pictures that are named, by default all, and print their files."""
    names = sys.argv[1:] or list(PICTURES)
    for name in names:
        if name not in PICTURES:
            print(f"there is no picture {name!r}; there are {', '.join(PICTURES)}", file=sys.stderr)
            return 2
    for name in names:
        for file in PICTURES[name](FOLDER):
            print(f"{file} {file.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
