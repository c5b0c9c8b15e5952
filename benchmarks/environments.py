"""An environment of its own for each of the other frameworks, made on demand under `.bench-venvs`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The root of the repository."""
PEERS = {"bytewax": "bytewax", "quix": "quix", "faststream": "faststream", "faust": "faust_app"}
"""Framework to the program that does the work with it."""
CAMERA_PEERS = {"cameras-opencv": "opencvloop", "cameras-roboflow": "roboflow"}
"""Way of reading cameras to the program of `benchmarks.programs.cameras` that does the work with it."""
MQTT_PEERS = {
    "mqtt-gmqtt": "gmqtt",
    "mqtt-aiomqtt": "aiomqtt",
    "mqtt-bridge": "mqbridge",
    "mqtt-faststream": "faststream",
}
"""MQTT client to the program of `benchmarks.programs.mqtt` that does the work with it."""
TITLES = {
    "bytewax": "Bytewax",
    "quix": "Quix Streams",
    "faststream": "FastStream",
    "faust": "Faust (faust-streaming)",
    "mqtt-gmqtt": "gmqtt",
    "mqtt-aiomqtt": "aiomqtt",
    "mqtt-bridge": "mq-bridge",
    "mqtt-faststream": "FastStream",
    "cameras-opencv": "OpenCV loop",
    "cameras-roboflow": "Roboflow InferencePipeline",
    "trackers": "trackers",
    "supervision": "supervision",
    "serving-fastapi": "FastAPI",
    "serving-mlserver": "MLServer",
}
_PACKAGES = {
    "bytewax": "bytewax",
    "quix": "quixstreams",
    "faststream": "faststream",
    "faust": "faust-streaming",
    "mqtt-gmqtt": "gmqtt",
    "mqtt-aiomqtt": "aiomqtt",
    "mqtt-bridge": "mq-bridge",
    "mqtt-faststream": "faststream",
    "cameras-opencv": "opencv-python-headless",
    "cameras-roboflow": "inference",
    "trackers": "trackers",
    "supervision": "supervision",
    "serving-fastapi": "fastapi",
    "serving-mlserver": "mlserver",
}


def python_of(peer: str, progress: Callable[[str], None]) -> Path:
    """The interpreter that has this framework; installed first if that has not been done, about half a minute."""
    folder = ROOT / ".bench-venvs" / peer
    pinned = ROOT / "benchmarks" / "peers" / f"{peer}.txt"
    python, stamp = folder / "bin" / "python", folder / ".installed"
    if stamp.exists() and stamp.read_bytes() == pinned.read_bytes():
        return python
    progress(f"installing {TITLES[peer]} into {folder.relative_to(ROOT)}")
    _run([sys.executable, "-m", "venv", "--clear", str(folder)])
    _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", str(pinned)])
    stamp.write_bytes(pinned.read_bytes())
    return python


def version_of(peer: str) -> str:
    """The pinned version of a framework."""
    lines = (ROOT / "benchmarks" / "peers" / f"{peer}.txt").read_text(encoding="utf-8").splitlines()
    return next(line.split("==")[1] for line in lines if line.startswith(f"{_PACKAGES[peer]}=="))


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
