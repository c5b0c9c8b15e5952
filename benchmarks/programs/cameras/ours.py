"""The service itself, on a film: `ours FILM [MODEL]`; without a model it does nothing with pictures."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from benchmarks.programs.cameras.meter import WARM, Meter
from streamer.agent.agent import Agent
from streamer.cli.process import collect_less_often
from streamer.definition.loading import loads

SIDE = 320


def main() -> None:
    """Run every picture."""
    collect_less_often()
    agent, meter = Agent(service(*sys.argv[1:])), Meter()
    agent.start()
    (polled,) = agent.meters.sources.values()
    while polled.polled_rows < WARM:
        time.sleep(0.005)
    meter.saw(polled.polled_rows)
    summary = agent.join()
    meter.saw(polled.polled_rows)
    meter.tell()
    if summary.error is not None:
        sys.exit(summary.error)


def service(film: str, model: str = "") -> Any:
    """The service that runs a film."""
    return loads(
        json.dumps(
            {
                "name": "bench",
                "source": {"type": "camera", "cameras": {"film": film}},
                "pipeline": {"steps": [array_step(), {"@type": "ONNX", "modelUri": model}] if model else []},
                "sink": {"type": "memory", "topic": "seen", "codec": "json", "drop": ["image"]},
                "control": {"listen": "127.0.0.1:0"},
            }
        )
    )


def array_step() -> dict[str, Any]:
    """The step that makes the model's input of a picture."""
    return {
        "@type": "IMAGE_TO_NDARRAY",
        "keys": ["image"],
        "outputNames": ["picture"],
        "keepOtherValues": False,
        "config": {
            "height": SIDE,
            "width": SIDE,
            "aspectRatioHandling": "STRETCH",
            "normalization": {"type": "SCALE_01"},
        },
    }


if __name__ == "__main__":
    main()
