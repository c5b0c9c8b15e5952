"""Ours: the source alone, the sink alone, or a service file as `streamer run` runs it."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.programs.mqtt.job import RESULTS, WINDOW, MqttJob, Told


def main() -> None:
    """Run until SIGTERM."""
    job = MqttJob.from_arguments()
    {"receive": _receive, "publish": _publish, "service": _service}[job.task](job)


def _receive(job: MqttJob) -> None:
    from connectors.mqtt.config import MqttSourceConfig

    told, going = Told(job), _until_sigterm()
    source = MqttSourceConfig(**_client(job), topics=[job.source], window=WINDOW).build()
    source.open()
    while going():
        records = source.poll(job.batch, 1 << 30, 0.1)
        if len(records):
            lane = records.spans[-1].lane
            source.acknowledge({lane: int(records.positions[-1]) + 1})
            told.add(len(records))
    source.close()


def _publish(job: MqttJob) -> None:
    import numpy as np

    from connectors.mqtt.sinkconfig import MqttSinkConfig
    from connectors.records import Messages
    from pipelines.data.spans import Spans

    going = _until_sigterm()
    sink = MqttSinkConfig(**_client(job), topic=job.sink, window=WINDOW).build()
    sink.open()
    values = Spans.of([bytes(job.payload)] * job.batch)
    first = 0
    while going():
        rows = np.arange(first, first + job.batch)
        refused = sink.send(Messages(rows, values, row_range=range(first, first + job.batch)), time.monotonic() + 30)
        if refused:
            sys.exit(str(next(iter(refused.values()))))
        sink.confirmed()
        first += job.batch
    sink.close()


def _service(job: MqttJob) -> None:
    import yaml

    from streamer.agent.agent import Agent
    from streamer.agent.signals import stopped_by_signals
    from streamer.cli.process import collect_less_often
    from streamer.definition.loading import load

    collect_less_often()
    path = Path(job.folder) / f"{job.group}.yaml"
    path.write_text(yaml.safe_dump(service_file(job)), encoding="utf-8")
    agent = Agent(load(path))
    with stopped_by_signals(agent.stop):
        agent.start()
        summary = agent.join()
    if summary.error is not None:
        sys.exit(summary.error)


def service_file(job: MqttJob) -> dict[str, Any]:
    """The service file."""
    broker = {"type": "mqtt", "url": f"mqtt://{job.bootstrap}", "version": job.version, "window": WINDOW}
    return {
        "name": "bench",
        "source": {**broker, "topics": [job.source], "client_id": f"{job.group}-in"},
        "pipeline": {"steps": [{"@type": "ONNX", "modelUri": job.model}]},
        "keep": ["device_id", "ts"],
        "batch": {"max_records": job.batch, "max_wait": f"{job.max_wait * 1000:g}ms"},
        "sink": {**broker, "topic": RESULTS, "client_id": f"{job.group}-out"},
        "dead_letter": {**broker, "topic": job.dead, "client_id": f"{job.group}-dead"},
        "control": {"listen": "127.0.0.1:0"},
    }


def _client(job: MqttJob) -> dict[str, Any]:
    return {"url": f"mqtt://{job.bootstrap}", "client_id": job.group, "version": job.version, "qos": 1}


def _until_sigterm() -> Any:
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    return lambda: not stopped


if __name__ == "__main__":
    main()
