"""A photograph of the page of the sink `view` with zones, counts and events, and with a camera that is down."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from drawn.browser import Scheme, browser, page
from streamer.agent.agent import Agent
from streamer.agent.assembly import build
from streamer.definition.loading import loads

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
FILMED: Final = ("bar", "gate", "square")
"""The cameras whose films there are."""
DOWN: Final = "dock"
"""The camera that nothing answers for."""
SIZE: Final = (1280, 800)
QUALITY: Final = 80
"""Of the WebP files, of 100."""

PIPELINE: Final = """
- {"@type": DETECT, modelUri: objects.onnx, box: y1x1y2x2, unit: fractions, keep: [person, cup, car, bus]}
- {"@type": TRACK, bboxName: boxes, maxAge: 2}
- "@type": ZONES
  bboxName: boxes
  zones:
    entrance: {cameras: [square], points: [[0.3, 0.62], [0.8, 0.62], [0.88, 0.98], [0.22, 0.98]]}
  lines:
    road: {cameras: [gate], start: [0.5, 1], end: [0.5, 0.4], labels: [car, bus]}
    counter: {cameras: [bar], start: [0.5, 0.98], end: [0.5, 0.3]}
"""

# Events, and in the pictures of each camera something; of the one that is down, what keeps it from giving pictures.
_COMPLETE: Final = """([filmed, down]) => {
  if (performance.now() < 20000 || document.querySelectorAll('#event-list img').length < 8) return false;
  const figures = [...document.querySelectorAll('figure')];
  const all = figures.reduce((sum, one) => sum + Number(one.querySelector('canvas').dataset.boxes ?? 0), 0);
  return all >= 6 && figures.length === filmed.length + 1 && figures.every((figure) => {
    const name = figure.querySelector('figcaption strong').textContent;
    const { boxes } = figure.querySelector('canvas').dataset;
    return name === down ? figure.classList.contains('silent') : Number(boxes) > 0;
  });
}"""


def write(folder: Path) -> list[Path]:
    """Run the service, and write `objects-page.webp` and `objects-page-dark.webp`. Returns their paths."""
    from PIL import Image

    files = []
    with tempfile.TemporaryDirectory() as place, service(Path(place)) as address, browser() as opened:
        schemes: tuple[tuple[Scheme, str], ...] = (("light", ""), ("dark", "-dark"))
        for scheme, ending in schemes:
            file = folder / f"objects-page{ending}.webp"
            png = photograph(opened, address, scheme)
            Image.open(io.BytesIO(png)).convert("RGB").save(file, quality=QUALITY, method=6)
            files.append(file)
    return files


@contextmanager
def service(place: Path) -> Iterator[str]:
    """The service on the example's films, which are written into this folder. Gives the address of its page."""
    subprocess.run([sys.executable, str(EXAMPLES / "cameras" / "film.py"), str(place), *FILMED], check=True)  # noqa: S603
    cameras: dict[str, Any] = {
        name: {"url": str(place / f"{name}.mp4"), "real_time": True, "loop": True} for name in FILMED
    }
    cameras[DOWN] = {"url": "rtsp://127.0.0.1:1/live"}
    text = f"""
name: yard
source: {{type: camera, cameras: {json.dumps(cameras)}, each: {{fps: 3}}}}
pipeline: {PIPELINE.replace(chr(10), chr(10) + "  ")}
sink: {{type: view, listen: "127.0.0.1:0"}}
"""
    with ExitStack() as stack:
        agent = Agent(loaded := loads(text, base=EXAMPLES / "objects"), assembly=(assembly := build(loaded)))
        agent.start()
        stack.callback(agent.join, 60)
        stack.callback(agent.stop)
        host, port = assembly.routes[0].sink.address  # type: ignore[attr-defined]
        yield f"http://{host}:{port}"


def photograph(opened: Any, address: str, scheme: Scheme) -> bytes:
    """The page, as PNG, once all cameras show something and there are events."""
    with page(opened, *SIZE, scheme) as shown:
        shown.goto(address)
        shown.wait_for_function(_COMPLETE, arg=[list(FILMED), DOWN])
        png: bytes = shown.screenshot()
        return png
