"""The service on live cameras: `live SECONDS PAUSE MODEL URL...` measures ages of pictures and memory.

`PAUSE` is how long a model takes that does nothing but sleep, in seconds; with 0 MODEL runs. Printed are quantiles in
milliseconds: `age`, from the receipt of a picture's data to the beginning of its inference, `result`, from the receipt
to the end of the pipeline, and `rest`, the same without the time that `session.run` took.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import onnxruntime
import psutil

from benchmarks.programs.cameras.ours import array_step
from pipelines import Data
from streamer.agent.agent import Agent
from streamer.cli.process import collect_less_often
from streamer.definition.loading import loads

ages: list[float] = []
results: list[float] = []
rests: list[float] = []
_model = [0.0]
"""Milliseconds that `session.run` took last."""


def begin(data: Data) -> Data:
    """Note how old the picture is."""
    ages.append(time.time() * 1000 - data["receipt"])
    return data


def pause(data: Data) -> Data:
    """A model that takes its time."""
    time.sleep(float(sys.argv[2]))
    return data


def after(data: Data) -> Data:
    """The pipeline has ended: note how old the result is."""
    old = time.time() * 1000 - data.record.extras["receipt"] if data.record is not None else 0.0
    results.append(old)
    rests.append(old - _model[0])
    return data


def time_the_model() -> None:
    """Note how long each `session.run` takes: measuring in steps before and after it would include their own cost."""
    run = onnxruntime.InferenceSession.run

    def timed(session: Any, *arguments: Any, **named: Any) -> Any:
        began = time.perf_counter()
        found = run(session, *arguments, **named)
        _model[0] = (time.perf_counter() - began) * 1000
        return found

    onnxruntime.InferenceSession.run = timed


def main() -> None:
    """Run for the time that was given, after two seconds that do not count."""
    seconds, wait, model, urls = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3], sys.argv[4:]
    collect_less_often()
    time_the_model()
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
    print(json.dumps({**told, "pictures": len(ages) + len(results), "rss": rss, "cores": spent / seconds}), flush=True)


def service(wait: float, model: str, urls: list[str]) -> dict[str, Any]:
    """The service file."""
    module = "benchmarks.programs.cameras.live"
    # No step that measures stands where its own time would count.
    if wait:
        steps: list[dict[str, Any]] = [
            {"@type": "FUNCTION", "name": "begin", "function": f"{module}:begin"},
            {"@type": "FUNCTION", "name": "pause", "function": f"{module}:pause"},
        ]
    else:
        steps = [
            array_step(),
            {"@type": "ONNX", "modelUri": model},
            {"@type": "FUNCTION", "name": "after", "function": f"{module}:after"},
        ]
    return {
        "name": "bench",
        "source": {
            "type": "camera",
            "cameras": {f"c{number}": url for number, url in enumerate(urls)},
            "into": {"receipt": "receipt"} if wait else {},
        },
        "pipeline": {"steps": steps},
        "sink": {"type": "memory", "topic": "seen", "codec": "json", "drop": ["image"]},
    }


if __name__ == "__main__":
    # The functions' module is this one, under its own name, not `__main__`.
    from benchmarks.programs.cameras import live

    live.main()
