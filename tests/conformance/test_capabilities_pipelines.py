"""What Konduit Serving's documents promise of pipelines, checked as an outsider would: capabilities K-23 to K-43.

Rows that other tests check already are not here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from builtintypes import STEPS

import pipelines
from pipelines import Batch, Data, GraphBuilder, Sequence
from pipelines.errors import DefinitionError

ROOT = Path(__file__).parents[2]
VECTORS = Path(__file__).parent / "vectors"

COUNTED = """
import os, signal
import streamer
from pipelines import RowRunner, RunnerFactory, Step, default_registry

opened, closed = [], []

class Counted(Step):
    type_name = "COUNTED"

class Runner(RowRunner):
    def __init__(self, step, context):
        self.step = step
        opened.append(step.name)
    def run(self, data):
        if self.step.name == "c":
            os.kill(os.getpid(), signal.SIGTERM)
        return data
    def close(self):
        closed.append(self.step.name)

default_registry().add_step(Counted)
default_registry().add_runner(RunnerFactory("COUNTED", "python", "__main__:Runner"))
summary = streamer.load("service.yaml").run()
assert summary.error is None, summary
print(sorted(opened), sorted(closed))
"""


@pytest.mark.slow
def test_runners_are_closed_when_the_service_is_asked_to_end(tmp_path: Path) -> None:
    """K-23. Normal ends and steps that cannot be opened are in tests/pipelines/executors/test_executor.py."""
    (tmp_path / "in.jsonl").write_text('{"n": 1}\n')
    (tmp_path / "service.yaml").write_text(
        """
        name: ends
        source: {type: file, path: in.jsonl, format: jsonl, follow: true}
        pipeline:
          - {"@type": COUNTED, name: a}
          - {"@type": COUNTED, name: b}
          - {"@type": COUNTED, name: c}
        sink: {type: file, path: out.jsonl, format: jsonl}
        """
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", COUNTED],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "['a', 'b', 'c'] ['a', 'b', 'c']"


def test_the_steps_of_a_definition_run_in_their_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """K-24"""
    (tmp_path / "k24_order.py").write_text(
        """
seen = []
def first(data): seen.append("first"); return data
def second(data): seen.append("second"); return data
def third(data): seen.append("third"); return data
"""
    )
    monkeypatch.syspath_prepend(tmp_path)
    steps = [{"@type": "FUNCTION", "function": f"k24_order:{name}"} for name in ("first", "second", "third")]
    with pipelines.loads(json.dumps({"steps": steps})).open() as executor:
        executor.run(Data({"x": 1}))
    assert sys.modules["k24_order"].seen == ["first", "second", "third"]


def double(data: Data) -> Data:
    """Twice the number, and nothing else."""
    return Data({"n": 2 * data.get_int64("n")})


def test_one_program_drives_a_sequence_a_graph_and_a_graph_in_a_sequence() -> None:
    """K-26. What graphs do (K-25) is in tests/pipelines/executors/test_graph_executor.py."""
    graph = GraphBuilder()
    same = graph.input.then("same", lambda data: Data({"y": data["n"]}))
    whole = graph.build(graph.merge(graph.input.then("double", double), same))

    def drive(pipeline: Any) -> Any:
        with pipeline.open() as executor:
            return executor.run(Data({"n": 3}))

    assert drive(Sequence([double])) == Data({"n": 6})
    assert drive(whole) == Data({"n": 6, "y": 3})
    assert drive(Sequence([double, whole])) == Data({"n": 12, "y": 6})


STEP_TYPES = {step.type_name for step in STEPS}
STEP_FILES = [
    file
    for file in sorted((VECTORS / "konduit-definitions").glob("serialized__step-allfields__*.json"))
    if json.loads(file.read_text())["@type"] in STEP_TYPES
]
"""Every field of a type has a value; types without a file are among the examples of tests/test_step_pages.py."""


@pytest.mark.parametrize("file", STEP_FILES, ids=lambda file: file.stem.rpartition("__")[2])
def test_json_and_yaml_turn_into_each_other_without_end(file: Path) -> None:
    """K-27"""
    step = json.loads(file.read_text())
    pipeline = pipelines.loads(json.dumps({"steps": [step]}))

    text = pipeline.to_json()
    again = pipelines.loads(pipelines.loads(text).to_yaml())

    assert again == pipeline
    assert again.to_json() == text


def test_an_unknown_type_is_answered_with_what_it_may_have_meant() -> None:
    """K-27"""
    with pytest.raises(DefinitionError, match=r"did you mean.*IMAGE_CROP"):
        pipelines.loads('steps: [{"@type": IMAGE_CROPP}]')


def test_the_definitions_of_the_examples_name_no_python() -> None:
    """K-27"""
    files = sorted(ROOT.glob("examples/**/*.pipeline.*"))
    assert files
    for file in files:
        for step in pipelines.load(file).to_dict()["steps"]:
            assert "function" not in step


HEAVY = [
    *("confluent_kafka", "paho", "aiomqtt", "av", "cv2", "PIL"),
    *("starlette", "fastapi", "uvicorn", "httpx", "grpc"),
    *("onnxruntime", "torch", "tensorflow"),
]


def test_the_core_in_a_fresh_interpreter_knows_no_bus_no_server_and_no_model_library() -> None:
    """K-29"""
    code = f"import sys, pipelines; print([name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def memory_peak(run: Callable[[], object]) -> int:
    """Bytes that Python had at most beyond what it had before; the least of three runs, as other threads have some."""
    peaks = []
    for _ in range(3):
        run()
        tracemalloc.start()
        try:
            run()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    return min(peaks)


@pytest.mark.slow
def test_memory_grows_with_a_records_payload_and_by_no_copy_of_it() -> None:
    """K-43: five steps hand arrays on as they are, in batches too; decoding copies them once, encoding once."""

    def peaks(elements: int) -> list[int]:
        payload = Data({"x": np.zeros(elements, np.uint8)}).to_bytes()
        data = Data.from_bytes(payload)
        batch = Batch.of([data] * 8)
        with Sequence([lambda one: one] * 5).open() as executor:
            return [
                memory_peak(lambda: executor.run(data)),
                memory_peak(lambda: executor.run_batch(batch)),
                memory_peak(lambda: Data.from_bytes(payload)) - elements,
                memory_peak(data.to_bytes) - elements,
            ]

    assert peaks(10**6) == pytest.approx(peaks(10**7), abs=4000)
