"""Check and run a small service with the wheel that this interpreter has installed.

`python tryout.py --hot-path compiled` reads 50 pictures of digits from a file, runs a model on them and reads the
results back. It needs streamer-inference with the extra `onnx`, and no file but itself. With `--without-model` the
service has no model, for platforms for which onnxruntime has no wheel. Exits with 1, and one sentence, if anything is
not as expected.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

COUNT = 50

SERVICE = """\
source: {type: file, path: digits.jsonl, format: jsonl}
pipeline: PIPELINE
keep: [id]
sink: {type: file, path: results.jsonl, format: jsonl}
"""
MODEL = """
  - {"@type": ONNX, modelUri: digits.onnx}
  - {"@type": CLASSIFIER_OUTPUT, inputName: probabilities, returnIndex: false, labels: LABELS}"""


def main() -> None:
    """Run the service, and print in one line what works."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hot-path", choices=("compiled", "python"), required=True, help="the one that is expected")
    parser.add_argument("--without-model", action="store_true", help="where onnxruntime cannot be installed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        version, hot_path = _run(Path(folder), "--version").splitlines()[:2]
        if hot_path.startswith("hot path: compiled") != (options.hot_path == "compiled"):
            sys.exit(f"expected the hot path to be {options.hot_path}, but it says: {hot_path}")
        _serve(Path(folder), with_model=not options.without_model)
    print(f"{version}, {hot_path}: check and run of a service work on {sys.platform}, Python {sys.version.split()[0]}")


def _serve(folder: Path, *, with_model: bool) -> None:
    labels = _write_records(folder)
    pipeline = MODEL.replace("LABELS", json.dumps(list("0123456789"))) if with_model else "[]"
    (folder / "service.yaml").write_text(SERVICE.replace("PIPELINE", pipeline), encoding="utf-8")
    if with_model:
        with as_file(files("streamer.demo.digits") / "digits.onnx") as model:
            (folder / "digits.onnx").write_bytes(model.read_bytes())
    _run(folder, "check", "service.yaml")
    _run(folder, "run", "service.yaml")
    lines = (folder / "results.jsonl").read_text(encoding="utf-8").splitlines()
    results: list[dict[str, Any]] = [json.loads(line) for line in lines]
    if [result["id"] for result in results] != list(range(COUNT)):
        sys.exit(f"expected {COUNT} results in the order of the records, got {len(results)}")
    if with_model:
        right = sum(result["label"] == str(label) for result, label in zip(results, labels, strict=True))
        if right < 0.9 * COUNT:
            sys.exit(f"the model names {right} of {COUNT} digits rightly, fewer than 9 in 10")


def _write_records(folder: Path) -> list[int]:
    """Write pictures of the demo as lines of JSON; returns the digits that they show."""
    import numpy as np

    with as_file(files("streamer.demo.digits") / "digits.npz") as path, np.load(path) as data:
        pictures, labels = data["images"][:COUNT], data["labels"][:COUNT]
    records = [json.dumps({"id": number, "image": picture.tolist()}) for number, picture in enumerate(pictures)]
    (folder / "digits.jsonl").write_text("\n".join(records) + "\n", encoding="utf-8")
    return [int(label) for label in labels]


def _run(folder: Path, *arguments: str) -> str:
    # Isolated from PYTHONPATH and the working directory, so that only what is installed counts.
    command = [sys.executable, "-I", "-m", "streamer", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode != 0:
        sys.exit(f"streamer {' '.join(arguments)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
