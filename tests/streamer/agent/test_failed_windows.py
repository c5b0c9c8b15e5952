"""A window for which a later step fails: its dead letter has the window, as its last record alone does not make it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import streamer
from connectors.memory import MemorySink, MemorySource, MemoryTopic
from connectors.message import Message
from connectors.sink import Lost
from pipelines import Data, Function, Join, Sequence, Window
from pipelines.errors import ConnectorError
from streamer.agent.agent import Agent
from streamer.agent.assembly import build
from streamer.definition.service import Service
from streamer.delivery.deadletter import original

SERVICE = """
name: vibration
source: {type: memory, codec: json, topic: pumps}
pipeline:
  - {"@type": WINDOW, by: device, size: 4, values: [ax], outputName: samples, gap: 10s, short: emit,
     time: {field: at, unit: s}}
  - {"@type": ONNX, name: fault, modelUri: abs.onnx, inputs: {x: samples}, keepOtherValues: true}
sink: {type: memory, codec: json, topic: faults}
dead_letter: {type: memory, topic: dead}
state: memory
"""


def four_samples(file: Path) -> None:
    """Write a model of four samples of one number, which takes no other windows."""
    shape: list[str | int | None] = ["N", 4, 1]
    graph = helper.make_graph(
        [helper.make_node("Abs", ["x"], ["score"])],
        "abs",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, shape)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), file)


def test_a_window_that_a_model_refuses_is_a_dead_letter_with_the_window(tmp_path: Path) -> None:
    four_samples(tmp_path / "abs.onnx")
    file = tmp_path / "vibration.yaml"
    file.write_text(SERVICE)
    # The third record of the fan comes so late that the window of the first two is short.
    records = [{"device": "fan", "at": at, "ax": at} for at in (10, 11)]
    records += [{"device": "pump", "at": at, "ax": at} for at in (10, 11, 12, 13)]
    records += [{"device": "fan", "at": at, "ax": at} for at in (40, 41, 42, 43)]
    report = streamer.testing.run(streamer.load(file), records)
    assert [result and result["device"] for result in report.results] == ["pump", "fan"]
    (letter,) = report.dead
    assert letter.message.value is not None
    window = Data.from_json(letter.message.value)
    assert window["samples"].tolist() == [[10], [11]]
    del window["samples"]
    assert dict(window) == {"device": "fan", "start": 10_000, "end": 11_000, "count": 2}
    assert (letter.origin.step, letter.origin.is_window, letter.origin.offset) == ("fault", True, 6)
    assert report.acknowledged == len(records)


class Bench:
    """A service on topics in memory, with batches of two records."""

    def __init__(
        self, define: Callable[..., Service], *steps: Any, sink: type[MemorySink] = MemorySink, **settings: Any
    ) -> None:
        self.given, self.results, self.dead = MemoryTopic("in", 1), MemoryTopic("out", 1), MemoryTopic("dead", 1)
        errors = {"stop_ratio": 1.0, "first": 0}
        service = define(batch={"max_records": 2}, errors=errors, state="memory", **settings)
        assembly = build(
            service.model_copy(update={"pipeline": Sequence(steps)}),
            sources={"memory": MemorySource(topic=self.given)},
            sinks={"memory": sink(topic=self.results)},
            dead=MemorySink(topic=self.dead),
        )
        self.agent = Agent(service, assembly=assembly)

    def run(self, *records: dict[str, Any], eventually: Any) -> None:
        for record in records:
            self.given.append(Message(Data(record).to_bytes(), b"key"))
        self.agent.start()
        try:
            eventually(lambda: self.given.group("default").acknowledged == [len(records)])
        finally:
            self.agent.stop()
            assert self.agent.join(60).error is None

    @property
    def letters(self) -> list[tuple[int, bool, Any]]:
        """Of each dead letter the offset of its record, whether it has a window, and its values."""
        listed = []
        for message in self.dead.messages():
            origin = original(message.headers)
            assert origin is not None
            assert message.value is not None
            values = json.loads(message.value) if origin.is_window else dict(Data.from_bytes(message.value))
            listed.append((origin.offset, origin.is_window, values))
        return listed


def refuse(data: Data) -> Data:
    if data["sum"] > 10:
        raise ValueError("refused")
    return data


def sums(**settings: Any) -> Window:
    return Window(by="device", size=3, aggregate={"sum": {"sum": "x"}}, time="arrival", **settings)


def test_records_that_fail_before_they_are_in_a_window_are_dead_letters_as_they_came(
    define: Callable[..., Service], eventually: Any
) -> None:
    bench = Bench(define, sums(), Function(refuse))
    bench.run(
        *({"device": "a", "x": x} for x in (1, 2)),
        {"device": "a", "x": "no number"},
        *({"device": "a", "x": x} for x in (3, 4, 5, 6)),
        eventually=eventually,
    )
    assert [Data.from_bytes(message.value or b"")["sum"] for message in bench.results.messages()] == [6]
    (_, _, record), (at, is_window, window) = bench.letters
    assert record == {"device": "a", "x": "no number"}
    assert (at, is_window, window["sum"], window["count"]) == (6, True, 15, 3)


def test_all_windows_that_a_record_completes_are_in_its_letter(define: Callable[..., Service], eventually: Any) -> None:
    # The last record is a block of samples, which completes three windows, one of which is refused.
    window = Window(by="device", size=2, values="block", output_name="samples", time="arrival")

    def high(data: Data) -> Data:
        if data["samples"].max() > 4:
            raise ValueError("refused")
        return data

    bench = Bench(define, window, Function(high))
    blocks = [np.array([1], "f4"), np.array([2, 3, 4, 5, 6], "f4")]
    bench.run(*({"device": "a", "block": block} for block in blocks), eventually=eventually)
    ((at, is_window, windows),) = bench.letters
    assert (at, is_window) == (1, True)
    samples = [Data.from_json(json.dumps(each))["samples"].tolist() for each in windows]
    assert samples == [[1, 2], [3, 4], [5, 6]]
    assert not bench.results.messages()


def test_the_letter_has_the_window_of_the_last_step_that_made_one(
    define: Callable[..., Service], eventually: Any
) -> None:
    of_sums = Window(by="device", size=2, aggregate={"sum": {"sum": "sum"}}, time="arrival")
    bench = Bench(define, sums(), of_sums, Function(refuse))
    bench.run(*({"device": "a", "x": x} for x in range(1, 7)), eventually=eventually)
    ((at, _, window),) = bench.letters
    assert (at, window["sum"], window["count"]) == (5, 21, 2)


class Refusing(MemorySink):
    """Refuses what it has accepted."""

    def barrier(self, deadline: float) -> Lost:
        return {row: ConnectorError("too large") for row in super().barrier(deadline)}


@pytest.mark.parametrize("late", [False, True])
def test_a_window_that_the_sink_refuses_is_in_its_letter(
    define: Callable[..., Service], eventually: Any, *, late: bool
) -> None:
    bench = Bench(define, sums(), sink=Refusing)
    if late:
        bench.results.faults.lose = lambda message: True
    else:
        bench.results.faults.refuse = lambda message: "too large"
    bench.run(*({"device": "a", "x": x} for x in range(1, 4)), eventually=eventually)
    ((at, _, window),) = bench.letters
    assert (at, window["sum"]) == (2, 6)


def test_a_window_that_json_cannot_carry_gives_a_letter_that_says_so(
    define: Callable[..., Service], eventually: Any
) -> None:
    def half(data: Data) -> Data:
        return Data({**data, "device": "half a surrogate pair: \ud800"})

    bench = Bench(define, Function(half), sums(), Function(refuse))
    bench.run(*({"device": "a", "x": x} for x in (4, 5, 6)), eventually=eventually)
    (message,) = bench.dead.messages()
    origin = original(message.headers)
    assert origin is not None
    assert (origin.is_window, origin.left_out) == (True, "payload")
    assert origin.refusal.startswith("its window cannot be written: ")


def test_a_window_counts_in_what_is_in_flight_until_it_is_confirmed(
    define: Callable[..., Service], eventually: Any
) -> None:
    window = Window(by="device", size=20_000, values="block", output_name="samples", time="arrival")
    bench = Bench(define, window)
    in_flight: list[int] = []

    def ask(message: Message) -> None:
        in_flight.append(bench.agent.meters.in_flight())

    bench.results.faults.refuse = ask
    block = np.zeros(10_000, np.float32)
    bench.run(*[{"device": "a", "block": block}] * 2, eventually=eventually)
    (most,) = in_flight
    assert most > 4 * block.nbytes
    assert bench.agent.meters.in_flight() == 0


def test_records_that_were_joined_are_together_in_the_letter() -> None:
    def refuse_all(data: Data) -> Data:
        raise ValueError("refused")

    join = Join(by="part", topics={"left": "camera", "right": "torque"}, within=5)
    service = Service(
        name="test",
        source={"type": "memory", "topic": "camera", "codec": "json"},
        pipeline=Sequence([join, Function(refuse_all)]),
        sink={"type": "memory", "topic": "out"},
        dead_letter={"type": "memory", "topic": "dead"},
        errors={"stop_ratio": 1.0, "first": 0},
        state="memory",
    )
    given = [Message({"part": 1, "at": at}, topic=topic) for at, topic in enumerate(["camera", "torque"])]
    (letter,) = streamer.testing.run(service, given).dead
    assert (letter.origin.offset, letter.origin.is_window) == (1, True)
    assert json.loads(letter.message.value or b"") == {
        "part": 1,
        "left": {"part": 1, "at": 0},
        "right": {"part": 1, "at": 1},
    }
