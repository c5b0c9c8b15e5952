"""The objects example as the demo runs it: a film, the service with a page, and what there is to be counted."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

import streamer.definition.loading
from streamer.definition.service import Service
from streamer.demo.examples import folder
from streamer.demo.films.example import film_maker

CAMERA = "bar"
"""The camera of the service, and the scene that its film shows."""
LINES = {"people": "person", "cups": "cup"}
"""The labels that the lines of the service count."""
MIDDLE = 0.5
"""Where the lines are, as a fraction of the picture's width."""
Counts = dict[str, dict[str, int]]
"""How many passed each line to the right (`in`) and to the left (`out`)."""


def film(place: Path) -> Path:
    """Write the film into the folder `place`. Returns its path."""
    file = place / f"{CAMERA}.mp4"
    film_maker().write(file, CAMERA)
    return file


def seconds() -> float:
    """How long the film lasts."""
    return float(film_maker().SECONDS)


def truth() -> Counts:
    """What passes the lines in the film."""
    maker = film_maker()
    counts: Counts = {}
    for line, label in LINES.items():
        ways = [
            way
            for thing in maker.SCENES[CAMERA].things
            if thing.label == label
            for way in thing.crossings(MIDDLE, maker.SECONDS)
        ]
        counts[line] = {"in": ways.count("right"), "out": ways.count("left")}
    return counts


def service(film: Path, listen: str, results: Path, *, live: bool = True) -> Service:
    """The service that `objects.yaml` defines, on this film: as if it were live, or as fast as it can.

    It shows a page at `listen` (`host:port`), and writes a line of JSON for each picture into the file `results`.
    """
    document = yaml.safe_load((folder("objects") / "objects.yaml").read_text(encoding="utf-8"))
    document["source"]["cameras"] = {CAMERA: str(film)}
    document["source"]["each"]["real_time"] = live
    document["sink"] = [
        {"type": "view", "name": "live", "listen": listen},
        {"type": "file", "name": "counts", "path": str(results), "format": "jsonl", "drop": ["image"]},
    ]
    document["dead_letter"]["path"] = str(results.with_name("dead.jsonl"))
    return streamer.definition.loading.loads(json.dumps(document), folder("objects"))
