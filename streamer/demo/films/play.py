"""The cameras demo from beginning to end."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.errors import StreamerError
from streamer.demo.films.example import NEEDS, films, service
from streamer.demo.running import check, free_port, started
from streamer.demo.stop import Stop

PATIENCE = 60.0
"""Seconds until the first picture must have been run."""


@dataclass
class CameraTally:
    """The pictures and objects of one camera that the service has seen so far."""

    pictures: int = 0
    objects: int = 0
    """Objects in the newest picture: people, cars, cups."""
    tracks: set[int] = field(default_factory=set)
    """Ids of all tracks so far."""


@dataclass(frozen=True, slots=True)
class CamerasOutcome:
    """The result of a demo, as its summary shows it."""

    seconds: float
    cameras: dict[str, CameraTally]
    videos: list[Path]
    """Files of the videos in which objects have boxes and faces are blurred."""
    no_videos: str = ""
    """Why no videos could be written; empty if they were, or were not wanted."""

    @property
    def pictures(self) -> int:
        """Pictures on which the model ran."""
        return sum(seen.pictures for seen in self.cameras.values())

    def to_dict(self) -> dict[str, object]:
        """The fields as plain values, for JSON."""
        cameras = {name: {"pictures": seen.pictures, "tracks": len(seen.tracks)} for name, seen in self.cameras.items()}
        videos = [str(video) for video in self.videos]
        return {"seconds": self.seconds, "cameras": cameras, "videos": videos, "no_videos": self.no_videos}


def play(
    *,
    seconds: float,
    video: Path | None,
    insist: bool,
    progress: Callable[[str], None],
    begun: Callable[[str], None],
    tell: Callable[[dict[str, CameraTally]], None],
    stop: Stop,
) -> CamerasOutcome | None:
    """Run the service on films for `seconds`, or until `stop` is set; `None` if it is set before the service began.

    `progress` is called before work that takes long, `begun` with the address of the page, `tell` every second with the
    state of the cameras. Videos go to the folder `video`, if one is given. Raises `StreamerError` if the service fails,
    or if the user insists on videos and that folder cannot be written to; else the outcome says why there are none.
    """
    NEEDS.check("streamer demo cameras")
    obstacle = "" if video is None else _obstacle(video)
    if obstacle and insist:
        raise StreamerError(obstacle)
    if obstacle:
        video = None
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamer-demo-")))
        with stop.at_once():
            cameras = films(place, progress)
        progress("starting the service")
        results, listen = place / "objects.jsonl", f"127.0.0.1:{free_port()}"
        before = set() if video is None else set(video.glob("*.mp4"))
        with ExitStack() as running:
            agent = started(service(cameras, listen, results, video), running)
            tail = _Tail(results, cameras)
            deadline = time.monotonic() + PATIENCE
            while not tail.read() and not stop.wait(0.1):
                check(agent)
                if time.monotonic() > deadline:
                    raise StreamerError(f"no picture was run within {PATIENCE:.0f} s ({agent.ready() or 'it runs'})")
            if stop.is_set():
                return None
            begun(f"http://{listen}")
            began = time.monotonic()
            while (left := began + seconds - time.monotonic()) > 0 and not stop.wait(min(1.0, left)):
                check(agent)
                tail.read()
                tell(tail.cameras)
            ran = time.monotonic() - began
        check(agent)
        tail.read()
        videos = [] if video is None else sorted(set(video.glob("*.mp4")) - before)
        return CamerasOutcome(ran, tail.cameras, videos, obstacle)


def _obstacle(folder: Path) -> str:
    """Why no files can be written in this folder, which is made if it is not there; empty if they can."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return f"{folder.absolute()} cannot be written to ({error.strerror}); name another folder with --video"


class _Tail:
    """Reads the lines that the service appends to its file of results."""

    def __init__(self, file: Path, cameras: dict[str, str]) -> None:
        self.cameras = {name: CameraTally() for name in cameras}
        self._file = file
        self._at = 0

    def read(self) -> int:
        """Read the new lines; returns the number of results so far."""
        if self._file.exists():
            with self._file.open("rb") as file:
                file.seek(self._at)
                for line in file:
                    if not line.endswith(b"\n"):
                        break
                    self._at += len(line)
                    self._take(json.loads(line))
        return sum(seen.pictures for seen in self.cameras.values())

    def _take(self, result: dict[str, object]) -> None:
        seen = self.cameras[str(result["camera"])]
        ids = result.get("ids")
        tracks = [track for track in ids if isinstance(track, int)] if isinstance(ids, list) else []
        seen.pictures += 1
        seen.objects = len(tracks)
        seen.tracks.update(track for track in tracks if track)
