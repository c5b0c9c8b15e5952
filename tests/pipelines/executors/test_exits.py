"""Code that calls `sys.exit` fails its record or its step, and ends no service; Ctrl-C still does."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from connectors.codecs.guarded import Guarded
from connectors.codecs.raw import TextConfig
from connectors.records import Lane, Records, Span
from pipelines import Batch, Data, FunctionCombine, FunctionSwitch, GraphBuilder, Result, Sequence, StepError, batched
from pipelines.definitions.definition import loads
from pipelines.errors import ExitCalledError
from pipelines.executors.openstep import OpenStep
from pipelines.observe.metrics import Metrics
from pipelines.runners.runner import Runner
from pipelines.steps import Step

TOLD = "ExitCalledError: sys.exit(3) was called, which ends no service"


def leaves(data: Data) -> Data:
    if data["n"] == 2:
        sys.exit(3)
    return data


class Leaving:
    def __call__(self, data: Data) -> Data:
        return leaves(data)


@batched
def leaves_with_all(batch: Batch) -> Batch:
    if 2 in batch["n"].values():
        sys.exit(3)
    return batch


async def leaves_later(data: Data) -> Data:
    await asyncio.sleep(0)
    return leaves(data)


async def leaves_in_a_task(data: Data) -> Data:
    return await asyncio.create_task(leaves_later(data))


@batched
async def leaves_with_all_later(batch: Batch) -> Batch:
    return leaves_with_all(batch)


@pytest.mark.parametrize(
    "function", [leaves, Leaving, leaves_with_all, leaves_later, leaves_in_a_task, leaves_with_all_later]
)
def test_a_function_that_exits_fails_its_record_alone(function: Callable[..., Any]) -> None:
    with Sequence([function]).open() as executor:
        for _ in range(2):
            found = executor.run_many([Data({"n": n}) for n in (1, 2, 3)])
            assert [isinstance(one, Data) for one in found] == [True, False, True]
            assert isinstance(found[1], StepError)
            assert str(found[1]).endswith(TOLD)


def test_a_function_that_joins_branches_and_exits_fails_its_record_alone() -> None:
    builder = GraphBuilder()
    stages = [builder.input.then(name, lambda data: data) for name in ("a", "b")]
    joined = builder.combine(FunctionCombine(lambda datas: leaves(datas[0])), *stages, name="best")
    with builder.build(joined).open() as executor:
        found = executor.run_many([Data({"n": n}) for n in (1, 2, 3)])
    assert [str(one).endswith(TOLD) for one in found] == [False, True, False]


def test_a_function_that_chooses_a_branch_and_exits_fails_its_record_alone() -> None:
    builder = GraphBuilder()
    (only,) = builder.input.switch("sw", FunctionSwitch(lambda data: leaves(data)["n"] * 0, num_outputs=1))
    with builder.build(only).open() as executor:
        found = executor.run_many([Data({"n": n}) for n in (1, 2, 3)])
    assert [str(one).endswith(TOLD) for one in found] == [False, True, False]


class ExitingRunner(Runner):
    """A plug-in's."""

    keeps_rows: ClassVar[bool] = True

    def run_batch(self, batch: Batch) -> Result:
        if 2 in batch["n"].values():
            sys.exit(3)
        return Result(batch)


def test_a_runner_that_exits_fails_its_record_alone() -> None:
    step = OpenStep("own", ExitingRunner(), Metrics().of("own"), config=Step(name="own"))
    result = step.run(Batch.of([Data({"n": n}) for n in (1, 2, 3)]))
    assert result.rows.tolist() == [0, 2]
    assert str(result.failed[1]) == f"own: {TOLD}"
    assert isinstance(result.failed[1].__cause__, ExitCalledError)


class Exiting:
    def __init__(self) -> None:
        sys.exit(3)

    def __call__(self, data: Data) -> Data:
        return data


def test_a_class_that_exits_when_it_opens_is_an_error_that_names_its_step() -> None:
    with pytest.raises(StepError, match=r"FUNCTION.*sys\.exit\(3\) was called"):
        Sequence([Exiting]).open()


def test_a_module_that_exits_when_it_is_imported_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_script_that_exits.py").write_text("import sys\nsys.exit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(StepError, match="importing a_script_that_exits failed with SystemExit: 3"):
        loads(json.dumps({"steps": [{"@type": "FUNCTION", "function": "a_script_that_exits:f"}]})).open()


def test_a_codec_that_exits_fails_its_record_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = TextConfig().build()
    decode, encode = codec.decode, codec.encode

    def reading(records: Records, wanted: frozenset[str] | None, first: int = 0) -> Any:
        return sys.exit(3) if b"bad" in list(records.values) else decode(records, wanted, first)

    def writing(batch: Batch) -> Any:
        return sys.exit(3) if "bad" in batch["text"].values() else encode(batch)

    monkeypatch.setattr(codec, "decode", reading)
    monkeypatch.setattr(codec, "encode", writing)
    spans = [Span(Lane("bus", "0", 0), 0, 3)]
    records = Records("bus", [b"a", b"bad", b"c"], [None] * 3, np.arange(3), spans, ["t"], [0], 0)
    guarded = Guarded(codec, "own")
    assert sorted(guarded.decode(records, None).failed) == [1]
    assert sorted(guarded.encode(Batch.of([Data({"text": one}) for one in ("a", "bad", "c")])).failed) == [1]


def test_ctrl_c_in_a_function_is_raised_on() -> None:
    def interrupted(data: Data) -> Data:
        raise KeyboardInterrupt

    with Sequence([interrupted]).open() as executor, pytest.raises(KeyboardInterrupt):
        executor.run(Data({"n": 1}))
