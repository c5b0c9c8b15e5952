"""The cameras example as the demo runs it: its films, its pipeline, a page, and a video of each camera."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pipelines
from pipelines.plugins.requirements import Package, all_of
from streamer.definition.service import Service
from streamer.demo.examples import folder

NEEDS = all_of(
    Package("av", "camera"), Package("lap", "camera"), Package("cv2", "image"), Package("onnxruntime", "onnx")
)
"""The packages that the demo needs."""


def films(place: Path, progress: Callable[[str], None]) -> dict[str, str]:
    """Write a film for each camera into the folder `place`. Returns their paths by the cameras' names."""
    film = film_maker()
    paths: dict[str, str] = {}
    for name in film.CAMERAS:
        progress(f"filming camera {name}")
        file = place / f"{name}.mp4"
        film.write(file, name)
        paths[name] = str(file)
    return paths


def service(cameras: dict[str, str], listen: str, results: Path, video: Path | None) -> Service:
    """The service on these films: a page at `listen` (`host:port`), results as JSON lines, and videos in a folder."""
    example = folder("cameras")
    sinks: list[dict[str, object]] = [
        {"type": "view", "name": "live", "listen": listen, "fps": 10, "boxes": ["boxes"]},
        {"type": "file", "name": "objects", "path": str(results), "format": "jsonl", "drop": ["image"]},
    ]
    if video is not None:
        path = str(video / "{camera}.mp4")
        sinks.append({"type": "video", "name": "video", "path": path, "fps": 4, "boxes": ["boxes"]})
    return Service.model_validate(
        {
            "name": "cameras",
            "source": {
                "type": "camera",
                "cameras": cameras,
                "each": {"real_time": True, "loop": True, "fps": 4},
                "into": {"key": "camera", "timestamp": "time"},
            },
            "pipeline": pipelines.load(example / "cameras.pipeline.yaml"),
            "keep": ["camera", "time"],
            "sink": sinks,
            "dead_letter": {"type": "file", "path": str(results.with_name("dead.jsonl")), "format": "jsonl"},
        }
    )


def film_maker() -> ModuleType:
    """The module `film.py` of the cameras example, which makes films of its scenes."""
    # In a checkout the example's folder is not a package, so its file is loaded by its path.
    spec = importlib.util.spec_from_file_location("streamer_demo_film", folder("cameras") / "film.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
