"""The service on live cameras: `live SECONDS PAUSE MODEL URL...` measures ages of pictures and memory.

`PAUSE` is how long a model takes that does nothing but sleep, in seconds; with 0 MODEL runs. Printed are quantiles in
milliseconds: `age`, from the receipt of a picture's data to the beginning of its inference, `result`, from the receipt
to the end of the pipeline, and `rest`, the same without the time that the model took.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import psutil

from benchmarks.programs.cameras.ours import array_step
from pipelines import Data
from streamer.agent.agent import Agent
from streamer.definition.loading import loads

ages: list[float] = []
results: list[float] = []
rests: list[float] = []
_began = [0.0]


def begin(data: Data) -> Data:
    """Note how old the picture is."""
    _began[0] = time.time()
    ages.append(_began[0] * 1000 - data["receipt"])
    return data


def pause(data: Data) -> Data:
    """A model that takes its time."""
    time.sleep(float(sys.argv[2]))
    return data


def before(data: Data) -> Data:
    """The model begins."""
    _began[0] = time.time()
    return data


def after(data: Data) -> Data:
    """The model has ended: note how old the result is."""
    now = time.time()
    old = now * 1000 - data.record.extras["receipt"] if data.record is not None else 0.0
    results.append(old)
    rests.append(old - (now - _began[0]) * 1000)
    return data


def main() -> None:
    """Run for the time that was given, after two seconds that do not count."""
    seconds, wait, model, urls = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4:]
    agent = Agent(loads(json.dumps(service(wait, model, urls))))
    agent.start()
    time.sleep(2.0)
    for kept in (ages, results, rests):
        kept.clear()
    cpu = time.process_time()
    time.sleep(seconds)
    spent = time.process_time() - cpu
    rss = psutil.Process().memory_info().rss
    agent.stop()
    agent.join()
    found = {"age": ages, "result": results, "rest": rests}
    told: dict[str, Any] = {name: np.quantile(kept, [0.5, 0.99]).tolist() for name, kept in found.items() if kept}
    print(json.dumps({**told, "pictures": len(ages), "rss": rss, "cores": spent / seconds}), flush=True)


def service(wait: float, model: str, urls: list[str]) -> dict[str, Any]:
    """What the service file says."""
    module = "benchmarks.programs.cameras.live"
    steps: list[dict[str, Any]] = [{"@type": "FUNCTION", "name": "begin", "function": f"{module}:begin"}]
    if wait:
        steps.append({"@type": "FUNCTION", "name": "pause", "function": f"{module}:pause"})
    else:
        steps += [
            array_step(),
            {"@type": "FUNCTION", "name": "before", "function": f"{module}:before"},
            {"@type": "ONNX", "modelUri": model},
            {"@type": "FUNCTION", "name": "after", "function": f"{module}:after"},
        ]
    return {
        "name": "bench",
        "source": {
            "type": "camera",
            "cameras": {f"c{number}": url for number, url in enumerate(urls)},
            "into": {"receipt": "receipt"},
        },
        "pipeline": {"steps": steps},
        "sink": {"type": "memory", "topic": "seen", "codec": "json", "drop": ["image"]},
    }


if __name__ == "__main__":
    # The functions' module is this one, under its own name, not `__main__`.
    from benchmarks.programs.cameras import live

    live.main()
