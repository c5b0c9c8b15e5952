from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def opened(function: Callable[..., Any] | str, **context: Any) -> SequenceExecutor:
    return SequenceExecutor([("f", Function(function))], OpenContext(**context), pipelines.default_registry())


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
