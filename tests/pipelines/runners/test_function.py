import asyncio
import contextlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import pipelines
from pipelines.data.batch import Batch
from pipelines.data.columns import Column
from pipelines.data.data import Data, RecordContext
from pipelines.errors import StepError
from pipelines.executors.sequence import SequenceExecutor
from pipelines.runners.runner import ContractError, OpenContext
from pipelines.steps.code.function import Function


def opened(
    function: Callable[..., Any] | str, *, args: dict[str, Any] | None = None, concurrency: int = 1, **context: Any
) -> SequenceExecutor:
    step = Function(function, args=args, concurrency=concurrency)
    return SequenceExecutor([("f", step)], OpenContext(**context), pipelines.default_registry())


def batch_of(*numbers: int, first: int = 10) -> Batch:
    return Batch.of([Data({"n": n}) for n in numbers], first=first)


def emitted(executor: SequenceExecutor, batch: Batch) -> list[tuple[int, int]]:
    result = executor.run_batch(batch)
    return list(zip(result.rows.tolist(), result.batch["n"].values(), strict=True))


def test_a_function_gets_each_record_and_its_data_is_the_result() -> None:
    assert opened(lambda data: Data({"n": data["n"] + 1})).run(Data({"n": 1})) == Data({"n": 2})


def test_a_function_may_change_the_record_it_was_given() -> None:
    def change(data: Data) -> Data:
        data["n"] += 1
        return data

    given = Data({"n": 1})
    assert opened(change).run(given) == Data({"n": 2})
    assert given == Data({"n": 1})


def test_a_function_knows_where_its_record_came_from() -> None:
    given = Data({"n": 1}, record=RecordContext("kafka", "topic", offset=5))
    found = opened(lambda data: Data({"offset": data.record.offset})).run(given)
    assert found == Data({"offset": 5})


def test_a_function_is_found_by_module_and_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_own_steps.py").write_text("def drop(data):\n    return None\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert opened("my_own_steps:drop").run(Data({"n": 1})) is None


def test_a_function_that_is_not_there_is_an_error_when_it_opens() -> None:
    with pytest.raises(StepError, match="no module no_such_module"):
        opened("no_such_module:f")


def test_code_that_is_not_allowed_does_not_open() -> None:
    with pytest.raises(StepError, match=r"runs code .*\(function\).* not allowed here"):
        opened("operator:neg", allow_code=False)


def test_a_batched_function_gets_the_whole_batch() -> None:
    sizes: list[int] = []

    @pipelines.batched
    def double(batch: Batch) -> Batch:
        sizes.append(len(batch))
        return batch.with_columns({"n": Column.of([2 * n for n in batch["n"]])})

    assert emitted(opened(double), batch_of(1, 2, 3)) == [(10, 2), (11, 4), (12, 6)]
    assert sizes == [3]


def test_a_batch_of_new_records_stands_for_the_given_ones_in_order() -> None:
    @pipelines.batched
    def fresh(batch: Batch) -> Batch:
        return Batch.of([Data({"n": -data["n"]}) for data in batch.to_list()])

    given = Batch.of([Data({"n": 1}, metadata={"m": 1}, record=RecordContext("s", "t"))], first=5)
    result = opened(fresh).run_batch(given)
    (found,) = result.batch.to_list()
    assert (result.rows.tolist(), found["n"], found.metadata) == ([5], -1, Data({"m": 1}))
    assert found.record == RecordContext("s", "t")


def test_rows_that_a_batched_function_leaves_out_are_dropped() -> None:
    @pipelines.batched
    def odd(batch: Batch) -> Batch:
        return batch.take([row for row, n in enumerate(batch["n"]) if n % 2])

    result = opened(odd).run_batch(batch_of(1, 2, 3))
    assert result.rows.tolist() == [10, 12]
    assert dict(result.dropped) == {11: "dropped by the step"}


def test_rows_that_a_batched_function_repeats_belong_to_their_record() -> None:
    @pipelines.batched
    def twice(batch: Batch) -> Batch:
        return Batch.concat([batch, batch])

    assert emitted(opened(twice), batch_of(1, 2)) == [(10, 1), (10, 1), (11, 2), (11, 2)]


def test_a_batch_of_another_size_must_say_which_rows_it_has() -> None:
    @pipelines.batched
    def shorter(batch: Batch) -> Batch:
        return Batch.of(batch.to_list()[:1])

    with pytest.raises(ContractError, match=r"was given 3 rows and returned 1 without saying which they are"):
        opened(shorter).run_batch(batch_of(1, 2, 3, first=0))


def test_numbers_make_a_batch_of_another_size_right() -> None:
    @pipelines.batched
    def sums(batch: Batch) -> Batch:
        total = Column.of([sum(batch["n"].values())])
        return Batch({"n": total}, 1, rows=batch.rows, splits=np.array([0, len(batch)]))

    result = opened(sums).run_batch(batch_of(1, 2, 3))
    assert result.batch.parents(0).tolist() == [10, 11, 12]
    assert result.batch["n"].values() == [6]


def test_a_batched_function_that_returns_no_batch_is_an_error_that_names_it() -> None:
    @pipelines.batched
    def wrong(batch: Any) -> Any:
        return batch.to_list()

    with pytest.raises(ContractError, match=r"f: .*wrong returned list; a batched function returns a Batch"):
        opened(wrong).run_batch(batch_of(1))


def test_a_record_that_makes_a_batched_function_raise_fails_alone() -> None:
    @pipelines.batched
    def strict(batch: Batch) -> Batch:
        if 2 in batch["n"].values():
            raise ValueError("two")
        return batch

    result = opened(strict).run_batch(batch_of(1, 2, 3))
    assert result.rows.tolist() == [10, 12]
    assert str(result.failed[11]) == "f: ValueError: two"


def test_a_dict_may_be_returned_for_a_data_and_keeps_the_metadata() -> None:
    given = Data({"n": 1}, metadata={"m": 2})
    found = opened(lambda data: {"twice": 2 * data["n"], "more": {"deep": [1, 2]}}).run(given)
    assert found == Data({"twice": 2, "more": Data({"deep": [1, 2]})})
    assert isinstance(found, Data)
    assert found.metadata == Data({"m": 2})


def test_a_list_of_dicts_multiplies_the_record() -> None:
    assert opened(lambda data: [{"n": 1}, Data({"n": 2})]).run(Data()) == [Data({"n": 1}), Data({"n": 2})]


def test_a_function_that_says_dict_is_given_one_whole_and_its_own() -> None:
    def dumped(record: dict[str, Any]) -> dict[str, Any]:
        record["list"].append(3)
        return {"json": json.dumps(record), "kind": type(record).__name__}

    given = Data({"a": {"b": [{"c": 1}]}, "list": [1, 2]})
    found = opened(dumped).run(given)
    assert found == Data({"json": '{"a": {"b": [{"c": 1}]}, "list": [1, 2, 3]}', "kind": "dict"})
    assert given["list"] == [1, 2]


def test_a_value_that_no_record_can_have_fails_that_record_alone() -> None:
    result = opened(lambda data: {"n": None if data["n"] == 2 else data["n"]}).run_batch(batch_of(1, 2, 3))
    assert result.rows.tolist() == [10, 12]
    assert 'key "n": ' in str(result.failed[11])
    assert "there is no null; leave the key out" in str(result.failed[11])


def test_a_returned_value_that_is_no_record_fails_its_record_alone() -> None:
    result = opened(lambda data: [{"n": 1}, 2] if data["n"] == 2 else data).run_batch(batch_of(1, 2, 3))
    assert result.rows.tolist() == [10, 12]
    assert "return a Data" in str(result.failed[11])


def above(data: Data, threshold: float, *, key: str = "n") -> Data | None:
    return data if data[key] > threshold else None


def test_a_function_gets_its_arguments() -> None:
    assert emitted(opened(above, args={"threshold": 1}), batch_of(1, 2)) == [(11, 2)]


@pytest.mark.parametrize(
    ("args", "said"),
    [({}, "missing a required argument: 'threshold'"), ({"treshold": 1}, 'did you mean "threshold"')],
)
def test_arguments_that_do_not_fit_are_told_when_it_opens(args: dict[str, Any], said: str) -> None:
    with pytest.raises(StepError, match=re.escape(said)):
        opened(above, args=args)


def test_arguments_and_concurrency_are_written_and_read_and_equal() -> None:
    step = Function("my:f", args={"a": [1, {"b": 2}]}, concurrency=4)
    assert step.to_dict() == {"@type": "FUNCTION", "function": "my:f", "args": {"a": [1, {"b": 2}]}, "concurrency": 4}
    again = pipelines.loads(json.dumps({"steps": [step.to_dict()]})).steps[0]
    assert again == step
    assert hash(again) == hash(step)
    assert step != Function("my:f")


class Lookup:
    """Knows names for numbers between `open` and `close`."""

    log: ClassVar[list[str]] = []

    def __init__(self, names: dict[str, str]) -> None:
        self.given = names
        self.names: dict[str, str] = {}

    def open(self) -> None:
        self.names = self.given
        self.log.append("open")

    def close(self) -> None:
        self.names = {}
        self.log.append("close")

    def __call__(self, data: Data) -> dict[str, str]:
        return {"name": self.names[str(data["n"])]}


def test_of_a_class_an_object_is_made_opened_called_and_closed() -> None:
    Lookup.log.clear()
    executor = opened(Lookup, args={"names": {"1": "one"}})
    assert Lookup.log == ["open"]
    result = executor.run_batch(batch_of(1, 2))
    assert [one["name"] for one in result.batch.to_list()] == ["one"]
    assert "KeyError: '2'" in str(result.failed[11])
    executor.close()
    assert Lookup.log == ["open", "close"]


def test_a_class_whose_objects_cannot_be_called_is_an_error_when_it_opens() -> None:
    class Mute:
        pass

    with pytest.raises(StepError, match="give it a __call__"):
        opened(Mute)


def test_a_class_may_take_whole_batches() -> None:
    class Doubled:
        @pipelines.batched
        def __call__(self, batch: Batch) -> Batch:
            return batch.with_columns({"n": Column.of([2 * n for n in batch["n"]])})

    assert emitted(opened(Doubled), batch_of(1, 2)) == [(10, 2), (11, 4)]


def test_an_async_function_works_on_so_many_records_at_a_time_and_keeps_their_order() -> None:
    running, most = 0, 0

    async def lookup(data: Data) -> dict[str, Any]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        # The first of four to begin is the last to end.
        for _ in range(10 - data["n"]):
            await asyncio.sleep(0)
        running -= 1
        if data["n"] == 3:
            raise ValueError("three")
        return {"n": -data["n"]}

    executor = opened(lookup, concurrency=4)
    result = executor.run_batch(batch_of(*range(10), first=0))
    assert result.rows.tolist() == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert result.batch["n"].values() == [0, -1, -2, -4, -5, -6, -7, -8, -9]
    assert str(result.failed[3]) == "f: ValueError: three"
    assert most == 4
    executor.close()


def test_an_async_function_runs_where_a_loop_runs_already() -> None:
    async def found(data: Data) -> Data:
        return data

    async def in_a_notebook() -> Any:
        with contextlib.closing(opened(found)) as executor:
            return executor.run(Data({"n": 1}))

    assert asyncio.run(in_a_notebook()) == Data({"n": 1})


def test_an_async_object_lives_in_one_loop_from_open_to_close() -> None:
    loops: list[Any] = []

    class Client:
        async def open(self) -> None:
            loops.append(asyncio.get_running_loop())

        async def __call__(self, data: Data) -> Data:
            loops.append(asyncio.get_running_loop())
            return data

        async def close(self) -> None:
            loops.append(asyncio.get_running_loop())

    executor = opened(Client)
    executor.run_batch(batch_of(1, 2))
    executor.close()
    assert len(loops) == 4
    assert len(set(loops)) == 1
    assert loops[0].is_closed()


def test_a_record_whose_waiting_is_cancelled_fails_alone() -> None:
    async def given_up(data: Data) -> Data:
        if data["n"] == 2:
            raise asyncio.CancelledError
        return data

    with contextlib.closing(opened(given_up)) as executor:
        result = executor.run_batch(batch_of(1, 2, 3))
    assert result.rows.tolist() == [10, 12]
    assert "cancelled" in str(result.failed[11])


def test_an_async_function_may_take_whole_batches() -> None:
    @pipelines.batched
    async def same(batch: Batch) -> Batch:
        await asyncio.sleep(0)
        return batch

    with contextlib.closing(opened(same)) as executor:
        assert emitted(executor, batch_of(1, 2)) == [(10, 1), (11, 2)]


def test_concurrency_of_a_function_that_is_not_async_is_an_error() -> None:
    with pytest.raises(StepError, match=r"concurrency is for async functions .*above is not async"):
        opened(above, args={"threshold": 1}, concurrency=2)


def test_a_function_that_drops_everything_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    executor = opened(lambda data: None)
    for _ in range(3):
        executor.run_batch(batch_of(*range(60)))
    executor.close()
    (said,) = [record.getMessage() for record in caplog.records]
    assert "dropped each of the first 120 records" in said


def test_a_function_that_keeps_one_record_is_not_told_of(caplog: pytest.LogCaptureFixture) -> None:
    executor = opened(lambda data: data if data["n"] == 1 else None)
    for _ in range(3):
        executor.run_batch(batch_of(*range(60)))
    executor.close()
    assert not caplog.records


def test_a_short_run_that_drops_everything_is_told_when_it_ends(caplog: pytest.LogCaptureFixture) -> None:
    executor = opened(lambda data: None)
    executor.run(Data())
    assert not caplog.records
    executor.close()
    assert "dropped each of the first 1 records" in caplog.text
