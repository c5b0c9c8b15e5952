"""The sequence executor, with runners of the tests' own."""

import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipelines
from pipelines.data.batch import Batch
from pipelines.data.columns import Column
from pipelines.data.data import Data, RecordContext
from pipelines.data.result import Result
from pipelines.data.wirecolumn import WireColumn
from pipelines.errors import DataError, RowsFailed, StepError, StreamerError, WrongTypeError
from pipelines.executors.executor import Executor
from pipelines.executors.sequence import SequenceExecutor
from pipelines.observe.observing import StepRun
from pipelines.runners.runner import ContractError, OpenContext, RowRunner, Runner, StatefulRunner
from pipelines.runners.state.item import Change, Item


class Given:
    """Hands out the runners that a test made; a step is the runner itself, or an exception to raise."""

    def check_runners(self, runners: Mapping[str, str]) -> None:
        pass

    def create(self, step: Any, context: OpenContext) -> Runner:
        if isinstance(step, BaseException):
            raise step
        runner: Runner = step
        return runner


def sequence(*runners: Any, **named: Any) -> SequenceExecutor:
    steps = [(f"s{place}", runner) for place, runner in enumerate(runners)] + list(named.items())
    return SequenceExecutor(steps, OpenContext(), Given())


class Whole(Runner):
    """Runs a function over whole batches and remembers their sizes."""

    def __init__(
        self, function: Callable[[Batch], Result | Batch], *, pure: bool = True, reads: frozenset[str] | None = None
    ) -> None:
        self.function = function
        self.sizes: list[int] = []
        self.closed = 0
        self.pure = pure  # type: ignore[misc]
        self._reads = reads

    @property
    def reads(self) -> frozenset[str] | None:
        return self._reads

    def run_batch(self, batch: Batch) -> Result:
        self.sizes.append(batch.size)
        found = self.function(batch)
        return Result(found) if isinstance(found, Batch) else found

    def close(self) -> None:
        self.closed += 1


class Rows(RowRunner):
    def __init__(self, function: Callable[[Data], Any]) -> None:
        self._function = function

    def run(self, data: Data) -> Any:
        return self._function(data)


def doubled(batch: Batch) -> Batch:
    return batch.with_columns({"n": Column.of([2 * value for value in batch["n"]])})


def refusing(*bad: int) -> Callable[[Batch], Batch]:
    def run(batch: Batch) -> Batch:
        if set(bad) & set(batch["n"].values()):
            raise ValueError("a bad one is among them")
        return doubled(batch)

    return run


def naming(*bad: int) -> Callable[[Batch], Batch]:
    def run(batch: Batch) -> Batch:
        failures = {row: ValueError(str(n)) for row, n in enumerate(batch["n"].values()) if n in bad}
        if failures:
            raise RowsFailed(failures)
        return doubled(batch)

    return run


def records(*numbers: int) -> list[Data]:
    return [Data({"n": n}) for n in numbers]


def emitted(result: Result) -> list[tuple[int, int]]:
    return list(zip(result.rows.tolist(), result.batch["n"].values(), strict=True)) if len(result.batch) else []


def test_the_output_of_each_step_is_the_input_of_the_next() -> None:
    with sequence(Whole(doubled), Rows(lambda data: Data({"n": data["n"] + 1}))) as executor:
        assert executor.run(Data({"n": 3})) == Data({"n": 7})
        result = executor.run_batch(Batch.of(records(1, 2), first=40))
    assert emitted(result) == [(40, 3), (41, 5)]
    assert (dict(result.failed), dict(result.dropped), result.held.tolist()) == ({}, {}, [])


def test_without_steps_the_input_is_the_result() -> None:
    executor = sequence()
    data = Data({"n": 1})
    assert executor.run(data) is data
    batch = Batch.of([data])
    assert executor.run_batch(batch).batch is batch
    assert executor.reads == frozenset()


def test_an_empty_batch_runs_no_step() -> None:
    step = Whole(doubled)
    assert len(sequence(step).run_batch(Batch.of([])).batch) == 0
    assert sequence(step).run_many([]) == []
    assert step.sizes == []


def test_a_failing_record_raises_an_error_that_names_the_step() -> None:
    with pytest.raises(StepError, match="s1: ValueError: a bad one") as caught:
        sequence(Whole(lambda batch: batch), Whole(refusing(1))).run(Data({"n": 1}))
    assert caught.value.step == "s1"
    assert isinstance(caught.value.__cause__, ValueError)


def test_dropped_multiplied_and_failed_records_come_back_in_their_places() -> None:
    def run(data: Data) -> Any:
        n = data["n"]
        return {0: None, 1: data, 2: [data, Data({"n": 20})], 3: [], 4: [data]}[n]

    found = sequence(Rows(run)).run_many(records(0, 1, 2, 3, 4, 5))
    assert found[:5] == [None, Data({"n": 1}), [Data({"n": 2}), Data({"n": 20})], None, Data({"n": 4})]
    assert isinstance(found[5], StepError)
    assert isinstance(found[5].__cause__, KeyError)


def test_one_record_may_be_dropped_or_multiplied() -> None:
    assert sequence(Rows(lambda data: None)).run(Data({"n": 1})) is None
    assert sequence(Rows(lambda data: [data, data])).run(Data({"n": 1})) == records(1, 1)


@pytest.mark.parametrize(
    ("returned", "told"), [(5, "int"), ([Data(), 5, None], "a list with int"), ([None], "a list with NoneType")]
)
def test_a_row_step_that_returns_something_else_fails_its_record(returned: Any, told: str) -> None:
    (found,) = sequence(Rows(lambda data: returned)).run_many(records(1))
    assert isinstance(found, StepError)
    assert f"a step returned {told}; return a Data, None (drop) or a list of Data" in str(found)


@given(st.sets(st.integers(0, 15)), st.integers(1, 16), st.booleans())
def test_bad_records_fail_alone_and_the_others_get_what_they_would_get_without_them(
    bad: set[int], size: int, named: bool
) -> None:
    step = Whole((naming if named else refusing)(*bad))
    result = sequence(step).run_batch(Batch.of(records(*range(size)), first=100))
    assert emitted(result) == [(100 + n, 2 * n) for n in range(size) if n not in bad]
    assert sorted(result.failed) == [100 + n for n in range(size) if n in bad]
    assert all(isinstance(error, StepError) and error.step == "s0" for error in result.failed.values())


def test_rows_that_a_step_names_cost_one_more_run_and_no_search() -> None:
    step = Whole(naming(3, 5))
    sequence(step).run_batch(Batch.of(records(*range(64))))
    assert step.sizes == [64, 62]


def test_a_search_by_halves_runs_a_step_a_few_times_only() -> None:
    step = Whole(refusing(3))
    sequence(step).run_batch(Batch.of(records(*range(64))))
    assert len(step.sizes) == 13


def test_a_batch_that_fails_in_an_impure_step_is_not_run_again() -> None:
    step = Whole(refusing(3), pure=False)
    result = sequence(step).run_batch(Batch.of(records(*range(4))))
    assert step.sizes == [4]
    assert sorted(result.failed) == [0, 1, 2, 3]


def test_rows_that_an_impure_step_names_fail_alone() -> None:
    result = sequence(Whole(naming(3), pure=False)).run_batch(Batch.of(records(*range(4))))
    assert emitted(result) == [(0, 0), (1, 2), (2, 4)]
    assert list(result.failed) == [3]


def test_failed_records_do_not_reach_later_steps() -> None:
    later = Whole(doubled)
    result = sequence(Whole(refusing(1)), later).run_batch(Batch.of(records(0, 1, 2)))
    assert later.sizes == [2]
    assert emitted(result) == [(0, 0), (2, 8)]


def test_later_steps_do_not_run_when_all_records_failed() -> None:
    later = Whole(doubled)
    result = sequence(Whole(refusing(1)), later).run_batch(Batch.of(records(1)))
    assert later.sizes == []
    assert list(result.failed) == [0]
    assert len(result.batch) == 0


def test_a_record_that_fails_in_part_fails_whole() -> None:
    def both(data: Data) -> Any:
        return [data, Data({"n": -data["n"]})]

    executor = sequence(Rows(both), Whole(refusing(-2)))
    result = executor.run_batch(Batch.of(records(1, 2, 3)))
    assert emitted(result) == [(0, 2), (0, -2), (2, 6), (2, -6)]
    assert list(result.failed) == [1]


def test_a_record_that_is_dropped_in_part_is_not_dropped() -> None:
    split = Rows(lambda data: [data, Data({"n": -data["n"]})])
    positive = Rows(lambda data: data if data["n"] > 0 else None)
    result = sequence(split, positive).run_batch(Batch.of(records(1, 2)))
    assert emitted(result) == [(0, 1), (1, 2)]
    assert dict(result.dropped) == {}


def test_a_record_that_fails_after_a_part_was_dropped_has_failed_only() -> None:
    split = Rows(lambda data: [data, Data({"n": -data["n"]})])
    positive = Rows(lambda data: data if data["n"] > 0 else None)
    result = sequence(split, positive, Whole(refusing(1))).run_batch(Batch.of(records(1, 2)))
    assert list(result.failed) == [0]
    assert dict(result.dropped) == {}


def test_memory_errors_are_searched_for_the_record_that_is_too_large() -> None:
    def run(batch: Batch) -> Batch:
        if 2 in batch["n"].values():
            raise MemoryError
        return batch

    result = sequence(Whole(run)).run_batch(Batch.of(records(1, 2, 3)))
    assert emitted(result) == [(0, 1), (2, 3)]
    assert list(result.failed) == [1]


def test_ctrl_c_is_never_kept_from_the_caller() -> None:
    def run(batch: Batch) -> Batch:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sequence(Whole(run)).run_batch(Batch.of(records(1, 2)))
    with pytest.raises(KeyboardInterrupt):
        sequence(Rows(lambda data: run(Batch.of([data])))).run_batch(Batch.of(records(1, 2)))


def test_undecodable_values_fail_their_records_in_the_step_that_reads_them() -> None:
    def decode(entries: Sequence[bytes | None]) -> Column:
        bad = {row: DataError("not a number") for row, entry in enumerate(entries) if not (entry or b"").isdigit()}
        if bad:
            raise RowsFailed(bad)
        return Column.of([int(entry or b"") for entry in entries])

    batch = Batch({"n": WireColumn([b"1", b"x", b"3"], decode)}, 3)
    for step in (Whole(doubled), Rows(lambda data: Data({"n": 2 * data["n"]}))):
        result = sequence(step).run_batch(batch)
        assert emitted(result) == [(0, 2), (2, 6)]
        assert list(result.failed) == [1]


def test_a_step_that_loses_a_row_is_an_error_that_names_it() -> None:
    with pytest.raises(ContractError, match="s0: row 1 went in and did not come out"):
        sequence(Whole(lambda batch: batch.take([0, 2]))).run_batch(Batch.of(records(1, 2, 3)))


def test_a_step_that_invents_a_row_is_an_error_that_names_it() -> None:
    with pytest.raises(ContractError, match="s0: rows 0, 1 came out and never went in"):
        sequence(Whole(lambda batch: Batch.concat([batch, Batch.of(records(1, 2))]))).run_batch(
            Batch.of(records(1, 2), first=50)
        )


def test_a_step_that_returns_no_result_is_an_error_that_names_it() -> None:
    with pytest.raises(ContractError, match="s0: the runner returned dict, not a Result"):
        sequence(Whole(lambda batch: {})).run_batch(Batch.of(records(1)))  # type: ignore[arg-type,return-value]


def test_a_step_that_names_rows_outside_its_batch_is_an_error() -> None:
    def run(batch: Batch) -> Batch:
        raise RowsFailed({5: ValueError()})

    with pytest.raises(ContractError, match="s0: RowsFailed with positions"):
        sequence(Whole(run)).run_batch(Batch.of(records(1)))


@pytest.mark.parametrize("first", [None, 7])
def test_results_keep_the_order_of_the_input(first: int | None) -> None:
    batch = Batch.of(records(1, 2, 3, 4), first=first)
    result = sequence(Whole(lambda batch: batch.take([2, 0, 3, 1, 0]))).run_batch(batch)
    assert result.batch["n"].values() == [1, 1, 2, 3, 4]


def test_results_keep_the_order_of_an_input_whose_numbers_do_not_rise() -> None:
    batch = Batch({"n": Column.of([1, 2, 3])}, 3, rows=np.array([30, 10, 20]))
    result = sequence(Whole(lambda batch: batch.take([2, 1, 0]))).run_batch(batch)
    assert emitted(result) == [(30, 1), (10, 2), (20, 3)]


def test_results_know_the_record_they_came_from() -> None:
    datas = [Data({"n": n}, record=RecordContext("kafka", "t", offset=n)) for n in (4, 5)]
    executor = sequence(Rows(lambda data: Data({"n": data["n"] + 1})))
    executor.run_many(records(1, 2, 3))
    found = executor.run_many(datas)
    assert [data.record.offset for data in found] == [4, 5]  # type: ignore[union-attr]


def test_the_keys_that_the_first_steps_read_are_known() -> None:
    class Keeps(Whole):
        keeps_keys: ClassVar[bool] = True

    a, b = frozenset("a"), frozenset("b")
    assert sequence(Keeps(doubled, reads=a), Whole(doubled, reads=b)).reads == a | b
    assert sequence(Whole(doubled, reads=a), Whole(doubled, reads=b)).reads == a
    assert sequence(Keeps(doubled, reads=a), Whole(doubled)).reads == a
    assert sequence(Whole(doubled), Whole(doubled, reads=b)).reads is None


def test_closing_closes_each_runner_once_and_the_executor_says_so_afterwards() -> None:
    steps = [Whole(doubled), Whole(doubled)]
    with sequence(*steps) as executor:
        pass
    executor.close()
    assert [step.closed for step in steps] == [1, 1]
    for use in (lambda: executor.run(Data()), executor.flush, executor.changes):
        with pytest.raises(StreamerError, match="the executor is closed"):
            use()


def test_a_runner_that_fails_to_close_is_logged_and_harms_no_other(caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(Whole):
        def close(self) -> None:
            raise OSError("stuck")

    first = Whole(doubled)
    sequence(first, Stuck(doubled)).close()
    assert first.closed == 1
    assert "closing the step s1 failed" in caplog.text


@pytest.mark.parametrize("error", [ValueError("no model"), KeyboardInterrupt()])
def test_a_step_that_cannot_be_opened_closes_those_before_it(error: BaseException) -> None:
    first = Whole(doubled)
    with pytest.raises((StepError, KeyboardInterrupt)) as caught:
        sequence(first, error, Whole(doubled))
    assert first.closed == 1
    if isinstance(error, Exception):
        assert str(caught.value) == "s1: ValueError: no model"
        assert caught.value.__cause__ is error


class Noted:
    def __init__(self) -> None:
        self.calls: list[tuple[str, int, dict[str, int]]] = []

    def step(self, run: StepRun) -> None:
        assert run.seconds >= 0
        self.calls.append((run.step, run.rows, dict(run.errors)))


def test_the_observer_hears_once_of_each_step_and_batch() -> None:
    executor = sequence(Whole(refusing(1, 2)), Whole(doubled), Whole(naming(12)))
    executor.observer = noted = Noted()
    executor.run_batch(Batch.of(records(0, 1, 2, 3)))
    assert noted.calls == [("s0", 4, {"ValueError": 2}), ("s1", 2, {}), ("s2", 2, {"ValueError": 1})]


class Threes(StatefulRunner):
    """Emits the sum of each three rows with all three as parents, the last `overlap` of them kept for the next."""

    def __init__(self, overlap: int = 0) -> None:
        self.kept: list[tuple[list[int], int]] = []
        self.overlap = overlap
        self.forgotten: list[Hashable] = []

    def run_batch(self, batch: Batch) -> Result:
        sums: list[int] = []
        parents: list[list[int]] = []
        for position, n in enumerate(batch["n"].values()):
            if n < 0:
                raise ValueError("negative")
            self.kept.append((batch.parents(position).tolist(), n))
            if len(self.kept) == 3:
                sums.append(sum(kept for _, kept in self.kept))
                parents.append(self._rows())
                self.kept = self.kept[3 - self.overlap :]
        return self._result(sums, parents)

    def _result(self, sums: list[int], parents: list[list[int]]) -> Result:
        splits = np.cumsum([0, *map(len, parents)])
        rows = np.array([row for one in parents for row in one], np.int64)
        batch = Batch({"n": Column.of(sums)}, len(sums), rows=rows, splits=splits)
        return Result(batch, held=np.array(self._rows(), np.int64))

    def _rows(self) -> list[int]:
        return [row for rows, _ in self.kept for row in rows]

    def tick(self, now: float) -> Result:
        return self.flush() if now > 10 else self._result([], [])

    def flush(self) -> Result:
        if not self.kept:
            return self._result([], [])
        total, rows = sum(n for _, n in self.kept), self._rows()
        self.kept = []
        return self._result([total], [rows])

    def forget(self, lanes: Iterable[Hashable]) -> None:
        self.forgotten.extend(lanes)
        self.kept = []

    def changes(self) -> Iterable[Change]:
        yield Change("lane", "all", 0, json.dumps(self.kept).encode() if self.kept else None)

    def load(self, lane: Hashable, items: Iterable[Item]) -> None:
        self.kept = []
        for item in items:
            self.kept = [tuple(one) for one in json.loads(item.value)]


def windows(result: Result) -> list[tuple[list[int], int]]:
    batch = result.batch
    return [(batch.parents(row).tolist(), batch["n"][row]) for row in range(len(batch))]


def test_a_stateful_step_holds_rows_and_emits_them_later_with_all_their_parents() -> None:
    executor = sequence(Threes(), Whole(doubled))
    first = executor.run_batch(Batch.of(records(1, 2), first=10))
    assert (windows(first), first.held.tolist()) == ([], [10, 11])
    second = executor.run_batch(Batch.of(records(3, 4), first=12))
    assert (windows(second), second.held.tolist()) == ([([10, 11, 12], 12)], [13])
    end = executor.flush()
    assert (windows(end), end.held.tolist()) == ([([13], 8)], [])
    assert windows(executor.flush()) == []


def test_time_alone_makes_held_rows_go_on_through_the_later_steps() -> None:
    executor = sequence(Threes(), Whole(doubled))
    executor.run_batch(Batch.of(records(1, 2)))
    assert windows(executor.tick(5.0)) == []
    assert windows(executor.tick(11.0)) == [([0, 1], 6)]


def test_a_record_that_is_emitted_and_still_needed_is_held_too() -> None:
    result = sequence(Threes(overlap=1)).run_batch(Batch.of(records(1, 2, 3)))
    assert windows(result) == [([0, 1, 2], 6)]
    assert result.held.tolist() == [2]


def test_flushing_empties_one_stateful_step_into_the_next() -> None:
    executor = sequence(Threes(), Threes(), Whole(doubled))
    result = executor.run_batch(Batch.of(records(*range(7))))
    assert (windows(result), result.held.tolist()) == ([], [0, 1, 2, 3, 4, 5, 6])
    end = executor.flush()
    assert (windows(end), end.held.tolist()) == ([([0, 1, 2, 3, 4, 5, 6], 42)], [])
    executor.run_batch(Batch.of(records(1, 2), first=7))
    end = executor.flush()
    assert (windows(end), end.held.tolist()) == ([([7, 8], 6)], [])


def test_a_window_that_fails_fails_its_records() -> None:
    executor = sequence(Threes(), Whole(refusing(12)))
    result = executor.run_batch(Batch.of(records(0, 1, 2, 3, 4, 5, 6)))
    assert windows(result) == [([0, 1, 2], 6)]
    assert sorted(result.failed) == [3, 4, 5]
    assert result.held.tolist() == [6]


def test_a_failing_window_takes_overlapping_ones_with_it_but_no_record_is_lost() -> None:
    executor = sequence(Threes(overlap=1), Whole(refusing(9)))
    result = executor.run_batch(Batch.of(records(0, 1, 2, 3, 4, 5, 6, 7)))
    # Windows 0-2, 2-4 (fails) and 4-6, of which the first and last share a record with the one that fails.
    assert windows(result) == []
    assert sorted(result.failed) == [0, 1, 2, 3, 4, 5, 6]
    assert result.held.tolist() == [7]


def test_a_batch_that_fails_in_a_stateful_step_is_not_run_again() -> None:
    result = sequence(Threes()).run_batch(Batch.of(records(1, -2, 3)))
    assert sorted(result.failed) == [0, 1, 2]


def test_an_error_while_flushing_names_the_step() -> None:
    class Broken(Threes):
        def flush(self) -> Result:
            raise OSError("disk")

    with pytest.raises(StepError, match="s1: OSError: disk"):
        sequence(Whole(doubled), Broken()).flush()


def test_results_of_several_records_stand_at_the_last_of_them() -> None:
    executor = sequence(Threes())
    assert executor.run_many(records(1, 2)) == [None, None]
    assert executor.run_many(records(3, 4, 5, 6)) == [Data({"n": 6}), None, None, Data({"n": 15})]
    assert executor.run(Data({"n": 1})) is None


def saved(executor: Executor) -> dict[str, list[Item]]:
    """The changes of an executor as what is loaded, by step."""
    items: dict[str, list[Item]] = {}
    for step, change in executor.changes():
        assert change.lane == "lane"
        if change.value is not None:
            items.setdefault(step, []).append(Item(change.key, change.part, change.value))
    return items


def test_state_goes_from_one_executor_to_another() -> None:
    before = sequence(Threes(), Whole(doubled), Threes())
    before.run_batch(Batch.of(records(1, 2)))
    after = sequence(Threes(), Whole(doubled), Threes())
    after.load("lane", saved(before))
    assert after.run_batch(Batch.of(records(3), first=2)).held.tolist() == [0, 1, 2]
    assert windows(after.flush()) == [([0, 1, 2], 12)]


def test_a_lane_that_is_loaded_without_items_begins_anew() -> None:
    executor = sequence(Threes())
    executor.run_batch(Batch.of(records(1, 2)))
    executor.load("lane", {})
    assert executor.run_batch(Batch.of(records(3, 4, 5), first=2)).batch["n"].values() == [12]


def test_a_pipeline_without_state_has_no_changes() -> None:
    executor = sequence(Whole(doubled))
    assert executor.changes() == []
    executor.load("lane", {})


def test_an_error_of_loading_names_its_step() -> None:
    with pytest.raises(StepError, match="s0: JSONDecodeError"):
        sequence(Threes()).load("lane", {"s0": [Item("all", 0, b"pickle")]})


def test_lanes_are_forgotten_by_all_stateful_steps() -> None:
    steps = [Threes(), Threes()]
    executor = sequence(steps[0], Whole(doubled), steps[1])
    executor.forget(iter([("kafka", 0, 1)]))
    assert [step.forgotten for step in steps] == [[("kafka", 0, 1)]] * 2


@pytest.mark.parametrize("steps", [[], [lambda data: data]])
def test_records_may_be_given_as_dicts(steps: list[Any]) -> None:
    with pipelines.Sequence(steps).open() as executor:
        assert executor.run({"n": 1, "deep": {"m": [2]}}) == Data({"n": 1, "deep": Data({"m": [2]})})
        assert executor.run_many([{"n": 1}, Data({"n": 2})]) == [Data({"n": 1}), Data({"n": 2})]
        assert executor.trace({"n": 1}).result == Data({"n": 1})
        with pytest.raises(WrongTypeError, match=r'key "n": .*no null'):
            executor.run({"n": None})


@pytest.mark.parametrize("steps", [[], [lambda data: data]])
@pytest.mark.parametrize(
    ("use", "given", "told"),
    [("run", [Data({"n": 1})], "list"), ("run", None, "NoneType"), ("run_many", Data({"n": 1}), "str")],
)
def test_what_is_no_record_is_told(steps: list[Any], use: str, given: Any, told: str) -> None:
    with (
        pipelines.Sequence(steps).open() as executor,
        pytest.raises(WrongTypeError, match=f"^a record is a Data or a dict, not {told}$"),
    ):
        getattr(executor, use)(given)
