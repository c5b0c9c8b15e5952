"""`limits.memory`: what is refused, what counts in a process of several services, and a process that lives on."""

from __future__ import annotations

import json
import mmap
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from pipelines.errors import DefinitionError, blamed
from streamer.agent.assembly import build
from streamer.definition.loading import load
from streamer.observe.memorylimit import ROOM, MemoryLimit, in_use

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="RLIMIT_DATA is one of Linux")

MUCH = 1 << 45
"""More than a process of tests ever uses."""
SERVICE = """
source: {type: file, path: in.jsonl, format: jsonl}
pipeline: PIPELINE
sink: {type: file, path: out.jsonl, format: jsonl}
dead_letter: {type: file, path: dead.jsonl, format: jsonl}
limits:
  memory: SIZE
"""


def soft() -> int:
    return resource.getrlimit(resource.RLIMIT_DATA)[0]


@pytest.fixture
def outside() -> Iterator[Callable[[int], None]]:
    """Set a limit as the process that started this one does; the former one comes back at the end."""
    before, hard = resource.getrlimit(resource.RLIMIT_DATA)
    yield lambda size: resource.setrlimit(resource.RLIMIT_DATA, (size, hard))
    resource.setrlimit(resource.RLIMIT_DATA, (before, hard))


def service(folder: Path, pipeline: str, size: str) -> Any:
    file = folder / "s.yaml"
    file.write_text(SERVICE.replace("PIPELINE", pipeline).replace("SIZE", size))
    (folder / "in.jsonl").touch()
    return load(file)


def test_a_limit_that_leaves_no_room_for_records_is_refused(tmp_path: Path) -> None:
    before = soft()
    assembly = build(service(tmp_path, "[]", "1MiB"))
    with pytest.raises(
        DefinitionError, match=r"s\.yaml:7: limits: memory: 1MiB is too little: the process uses \d+MiB"
    ):
        assembly.open()
    assert soft() == before


def test_a_limit_is_refused_where_the_system_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    with pytest.raises(DefinitionError, match=r"s\.yaml:7: limits\.memory: only Linux .* remove it"):
        service(tmp_path, "[]", "1GiB")


def test_the_limit_counts_while_the_service_is_open(tmp_path: Path) -> None:
    before = soft()
    assembly = build(service(tmp_path, "[]", str(MUCH)))
    assembly.open()
    assert soft() == MUCH
    assembly.close()
    assert soft() == before


def test_of_several_services_the_largest_limit_counts_also_while_the_others_are_opened() -> None:
    before = soft()
    with MemoryLimit(MUCH) as small:
        small.set()
        with MemoryLimit(None) as none:
            none.set()
            assert soft() == MUCH
        with MemoryLimit(2 * MUCH) as large:
            assert soft() == 2 * MUCH
            large.set()
            assert soft() == 2 * MUCH
        assert soft() == MUCH
    assert soft() == before


def test_a_limit_from_outside_is_never_raised(outside: Callable[[int], None]) -> None:
    outside(MUCH)
    with MemoryLimit(2 * MUCH) as limit:
        limit.set()
        assert soft() == MUCH
    assert soft() == MUCH


def test_while_memory_is_freed_other_threads_have_some_more() -> None:
    limits: list[int] = []

    class Holding:
        def __del__(self) -> None:
            limits.append(soft())

    def eat(held: Holding) -> None:
        raise MemoryError

    with MemoryLimit(MUCH) as limit:
        limit.set()
        with pytest.raises(MemoryError) as raised:
            eat(Holding())
        blamed(raised.value)
        assert limits == [MUCH + ROOM]
        assert soft() == MUCH


def test_what_is_in_use_is_what_the_limit_counts() -> None:
    before = in_use()
    # Of the system: the allocator may have freed memory left for a block of its own.
    with mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        assert in_use() - before >= len(block)


STEPS = """
import numpy as np

def eat(data):
    number = data["n"]
    # Fails if a record before it has left anything.
    large = np.empty(600 << 20, np.uint8)
    if data.get("eats"):
        data["large"] = large
        held = []
        while True:
            held.append(bytearray(1 << 20))
    return {"x": np.ones((number, 1), np.float32), "z": np.ones((1, number), np.float32)}
"""


def square(path: Path) -> None:
    """A model that makes `n * n` numbers of `n`, and adds them up."""
    value = helper.make_tensor_value_info
    nodes = [helper.make_node("MatMul", ["x", "z"], ["y"]), helper.make_node("ReduceSum", ["y"], ["sum"], keepdims=0)]
    inputs = [value("x", TensorProto.FLOAT, ["N", 1]), value("z", TensorProto.FLOAT, [1, "N"])]
    graph = helper.make_graph(nodes, "square", inputs, [value("sum", TensorProto.FLOAT, [])])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)


@pytest.mark.slow
def test_a_record_that_eats_memory_is_a_dead_letter_and_the_others_have_results(tmp_path: Path) -> None:
    (tmp_path / "steps_of_mine.py").write_text(STEPS)
    square(tmp_path / "square.onnx")
    steps = '[{"@type": FUNCTION, function: "steps_of_mine:eat"}, {"@type": ONNX, modelUri: square.onnx}]'
    (tmp_path / "s.yaml").write_text(SERVICE.replace("PIPELINE", steps).replace("SIZE", "1GiB"))
    records = [{"n": 1}, {"n": 2, "eats": True}, {"n": 3}, {"n": 20_000}, {"n": 5}, {"n": 6, "eats": True}, {"n": 7}]
    (tmp_path / "in.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    # As threads of numpy's take memory of their own, more on large machines.
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "streamer", "run", "s.yaml"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = [json.loads(line)["sum"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert results == [1, 9, 25, 49]
    letters = [dict(json.loads(line)["headers"]) for line in (tmp_path / "dead.jsonl").read_text().splitlines()]
    assert [(letter["streamer-offset"], letter["streamer-step"], letter["streamer-error"]) for letter in letters] == [
        ("1", "0:FUNCTION", "MemoryError"),
        ("3", "1:ONNX", "Fail"),
        ("5", "0:FUNCTION", "MemoryError"),
    ]
