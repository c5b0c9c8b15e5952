"""Rows whose errors may pass are run again, as far as the budget allows; all else stays as it is."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipelines
from pipelines import Batch, Data, DefinitionError, Function, PipelineStep, Retry, Sequence, StepError, StepPolicy
from pipelines.data.result import Result
from pipelines.definitions.wiring import Node
from pipelines.executors.retrybudget import RetryBudget
from pipelines.executors.retrying import Retrying
from pipelines.observe.meters import Counter as CounterMeter


class Backend:
    """A step that fails each record so many times before it succeeds, or for ever."""

    def __init__(self, failures: Mapping[int, int], error: Callable[[], Exception] = ConnectionError) -> None:
        self.left = dict(failures)
        self.error = error
        self.calls: Counter[int] = Counter()

    def __call__(self, data: Data) -> Data:
        number = data["n"]
        self.calls[number] += 1
        if self.left.get(number, 0) > 0:
            self.left[number] -= 1
            raise self.error()
        return Data({"n": number, "call": self.calls[number]})


def retried(step: Any, *, on: Any = ("ConnectionError",), attempts: int = 3, **named: Any) -> Any:
    policy = StepPolicy(Retry(on=on, attempts=attempts, wait=0.0))
    return Sequence([Function(step, name="s")]).open(steps={"s": policy}, **named)


def no_search(batch: Batch, error: Exception) -> Result:
    raise AssertionError(error)


def records(count: int) -> list[Data]:
    return [Data({"n": number}) for number in range(count)]


def test_only_records_whose_error_is_named_run_again_and_attempts_count_the_first_time() -> None:
    backend = Backend({1: 1, 2: 2, 3: 3})
    with retried(backend) as executor:
        outcomes = executor.run_many(records(5))
    assert [outcome["call"] if isinstance(outcome, Data) else None for outcome in outcomes] == [1, 2, 3, None, 1]
    assert isinstance(outcomes[3], StepError)
    assert isinstance(outcomes[3].__cause__, ConnectionError)
    assert backend.calls == {0: 1, 1: 2, 2: 3, 3: 3, 4: 1}
    assert executor.metrics["s"]["streamer_step_retries"].value == 5


class Refused(ConnectionError):
    pass


def caused() -> Exception:
    error = RuntimeError("no answer")
    error.__cause__ = Refused()
    return error


@pytest.mark.parametrize(
    ("on", "error", "again"),
    [
        (["ConnectionError"], ConnectionRefusedError, True),
        ([ConnectionError], Refused, True),
        ("OSError", caused, True),
        (["TimeoutError", "ValueError"], ConnectionError, False),
        (["json.decoder.JSONDecodeError", "json:JSONDecodeError"], ValueError, False),
        (["urllib.error.URLError"], OSError, False),
        (["ValueNotFoundError"], lambda: pipelines.ValueNotFoundError("x"), True),
        (["pipelines.errors.DataError"], lambda: pipelines.ValueNotFoundError("x"), True),
        (["SystemExit"], lambda: SystemExit(3), True),
    ],
)
def test_a_class_counts_for_the_error_its_subclasses_and_what_caused_it(on: Any, error: Any, again: bool) -> None:
    backend = Backend({0: 1}, error)
    with retried(backend, on=on) as executor:
        outcome = executor.run_many(records(1))[0]
    assert isinstance(outcome, Data) == again
    assert backend.calls[0] == 1 + again


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Retry(on=["ConectionError"]), 'no error "ConectionError"; did you mean "ConnectionError"?'),
        (lambda: Retry(on=["int"]), 'there is no error "int"'),
        (lambda: Retry(on=[int]), "<class 'int'> is no class of errors"),  # type: ignore[list-item]
        (lambda: Retry(on=["a..B"]), '"a..B" is no name of a class of errors'),
        (lambda: Retry(on=[]), "name the errors after which a record is run again"),
        (lambda: Retry(on=["OSError"], attempts=0), "retry.attempts: 0 is less than 1"),
        (lambda: Retry(on=["OSError"], wait=-1), "retry.wait: -1 is no number of seconds"),
        (lambda: StepPolicy(timeout=0), "timeout: 0 is no number of seconds above 0"),
    ],
)
def test_a_policy_that_makes_no_sense_says_what_is_wrong(make: Callable[[], object], message: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        make()
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("on", "message"),
    [
        ("json.JSONDecodeErr", 's: json:JSONDecodeErr: json has no "JSONDecodeErr"; did you mean "JSONDecodeError"?'),
        ("json.loads", "s: json.loads is no class of errors"),
        ("no_such_module.Error", "s: no_such_module:Error: there is no module no_such_module"),
    ],
)
def test_an_error_that_cannot_be_imported_is_refused_when_the_pipeline_opens(on: str, message: str) -> None:
    with pytest.raises(StepError) as caught:
        retried(Backend({}), on=[on])
    assert str(caught.value).startswith(message)


def test_an_error_of_another_module_is_not_imported_where_code_is_not_allowed() -> None:
    with pytest.raises(StepError, match=r"no_such_module\.Error has to be imported, and code from definitions is not"):
        Sequence([pipelines.Logging(name="s")]).open(
            allow_code=False, steps={"s": StepPolicy(Retry(on=["no_such_module.Error"]))}
        )


def test_a_name_counts_before_a_type_and_a_step_inside_is_named_by_its_way_or_its_name() -> None:
    deep, shallow = Backend({0: 1}), Backend({0: 2})
    pipeline = Sequence(
        [
            PipelineStep(Sequence([Function(deep, name="deep")]), name="outer"),
            Function(shallow, name="shallow"),
        ]
    )
    again = StepPolicy(Retry(on=["ConnectionError"], wait=0))
    for steps in (
        {"outer/deep": again, "shallow": again},
        {"deep": again, "FUNCTION": again},
        {"FUNCTION": StepPolicy(Retry(on=["ValueError"])), "deep": again, "shallow": again},
        {"PIPELINE": again, "FUNCTION": again},
    ):
        deep.left, shallow.left = {0: 1}, {0: 2}
        with pipeline.open(steps=steps) as executor:
            assert isinstance(executor.run(Data({"n": 0})), Data)


def test_a_step_that_is_called_otherwise_is_refused_with_the_nearest_name() -> None:
    graph = pipelines.Graph(
        {
            "left": Node(Function(Backend({})), ("input",)),
            "both": Node(pipelines.Merge(), ("input", "left")),
        },
        "both",
    )
    with pytest.raises(
        DefinitionError, match='steps: "lef" names no step; did you mean "left"\\?; there are left, FUN'
    ):
        graph.open(steps={"lef": StepPolicy()})
    with pytest.raises(DefinitionError, match='"both" is a MERGE, which only joins or splits branches'):
        graph.open(steps={"both": StepPolicy()})


def test_a_stateful_step_is_not_retried() -> None:
    step = pipelines.Track(name="t")
    with pytest.raises(StepError, match="t: retry: the step keeps state from record to record"):
        Sequence([step]).open(steps={"TRACK": StepPolicy(Retry(on=["OSError"]))})
    with pytest.raises(StepError, match="o: retry: the step keeps state"):
        Sequence([PipelineStep(Sequence([step]), name="o")]).open(steps={"o": StepPolicy(Retry(on=["OSError"]))})


@pipelines.batched
def whole(batch: Batch) -> Batch:
    return batch


@pipelines.batched
async def waits(batch: Batch) -> Batch:
    return batch


@pytest.mark.parametrize("step", [whole, waits, Backend({})])
def test_a_timeout_is_only_for_async_functions_of_one_record(step: Any) -> None:
    with pytest.raises(StepError, match=r"s: timeout: .*limits\.stuck .* --workers"):
        Sequence([Function(step, name="s")]).open(steps={"s": StepPolicy(timeout=1)})


def test_rows_of_a_record_and_rows_of_several_records_run_again_together() -> None:
    def run(batch: Batch) -> Result:
        calls.append([batch.parents(position).tolist() for position in range(batch.size)])
        failed = {row: ConnectionError() for row in (2,) if len(calls) == 1}
        keep = [position for position in range(batch.size) if 2 not in batch.parents(position) or not failed]
        return Result(batch.take(np.array(keep)), failed)

    counter = CounterMeter("c", "")
    retrying = Retrying("s", Retry(on=["OSError"], wait=0), (OSError,), RetryBudget(), counter)
    columns = {"x": pipelines.Column.of([0, 1, 2, 3, 4])}
    # Rows of the records 0; 1, 2; 2; 3; 3.
    windows = Batch(columns, 5, rows=np.array([0, 1, 2, 2, 3, 3]), splits=np.array([0, 1, 3, 4, 5, 6]))
    calls: list[list[list[int]]] = []
    result = retrying.run(windows, run, no_search)
    assert calls[1:] == [[[1, 2], [2]]]
    assert [result.batch.parents(position).tolist() for position in range(5)] == calls[0]
    assert not result.failed
    twice = Batch(columns, 5, rows=np.array([3, 2, 2, 7, 7]))
    calls.clear()
    result = retrying.run(twice, run, no_search)
    assert calls[1:] == [[[2], [2]]]
    assert result.batch.rows.tolist() == [3, 2, 2, 7, 7]


@given(
    st.lists(st.lists(st.integers(0, 7), min_size=1, max_size=3, unique=True), max_size=10),
    st.dictionaries(st.integers(0, 7), st.integers(1, 3)),
)
def test_rows_of_windows_keep_their_order_and_share_the_fate_of_their_records(
    windows: list[list[int]], fails: dict[int, int]
) -> None:
    left = dict(fails)

    def run(batch: Batch) -> Result:
        down = {record for record in batch.rows.tolist() if left.get(record, 0) > 0}
        left.update({record: left[record] - 1 for record in down})
        fine = [place for place in range(batch.size) if down.isdisjoint(batch.parents(place).tolist())]
        return Result(batch.take(np.array(fine, np.int64)), {record: OSError() for record in down})

    splits = np.cumsum([0, *map(len, windows)])
    rows = np.array([record for window in windows for record in window], np.int64)
    batch = Batch({"x": pipelines.Column.of(list(range(len(windows))))}, len(windows), rows=rows, splits=splits)
    retrying = Retrying("s", Retry(on=["OSError"], wait=0), (OSError,), RetryBudget(), CounterMeter("c", ""))
    result = retrying.run(batch, run, no_search)
    dead = {record for record in rows.tolist() if fails.get(record, 0) > 2}
    assert result.failed.keys() == dead
    expected = [window for window in windows if dead.isdisjoint(window)]
    assert [result.batch.parents(place).tolist() for place in range(result.batch.size)] == expected


@given(
    st.lists(st.sampled_from(["ok", "drop", "double", "bad", "once", "twice", "down"]), max_size=40),
    st.booleans(),
    st.integers(1, 3),
)
def test_order_and_account_are_those_of_a_step_that_did_not_fail(kinds: list[str], pure: bool, attempts: int) -> None:
    """Whether each record fails by itself, or a whole batch does and is searched by halves."""
    fails = {"once": 1, "twice": 2, "down": 99}
    left = {number: fails[kind] for number, kind in enumerate(kinds) if kind in fails}

    def step(data: Data) -> Any:
        number, kind = data["n"], data["kind"]
        if kind == "bad":
            raise ValueError(kind)
        if left.get(number, 0) > 0:
            left[number] -= 1
            raise ConnectionError(kind)
        if kind == "drop":
            return None
        return [data, Data(dict(data.items()))] if kind == "double" else data

    if not pure:
        step = Sequence([Function(step)])  # type: ignore[assignment]
    pipeline = Sequence([step])
    policies = {pipeline.named_steps()[0][0]: StepPolicy(Retry(on=["ConnectionError"], wait=0, attempts=attempts))}
    with pipeline.open(steps=policies) as executor:
        batch = Batch.of([Data({"n": number, "kind": kind}) for number, kind in enumerate(kinds)])
        result = executor.run_batch(batch)
    fine = [number for number, kind in enumerate(kinds) if kind in ("ok", "double") or fails.get(kind, 99) < attempts]
    assert result.batch.rows.tolist() == [number for number in fine for _ in range(1 + (kinds[number] == "double"))]
    assert result.dropped.keys() == {number for number, kind in enumerate(kinds) if kind == "drop"}
    assert result.failed.keys() == set(range(len(kinds))) - set(fine) - result.dropped.keys()


@pytest.mark.parametrize(
    ("down", "poison", "again", "sizes"),
    [
        # It passes: the batch is run again as it is.
        (1, None, 4, [4, 4]),
        (2, None, 8, [4, 4, 4]),
        # A record that the server breaks at: only the last attempt is searched.
        (0, 2, 8, [4, 4, 4, 2, 2, 1, 1]),
        # Another error is searched at once.
        (-1, 2, 0, [4, 2, 2, 1, 1]),
    ],
)
def test_a_batch_for_which_a_step_raises_is_run_again_whole_and_searched_at_last(
    down: int, poison: int | None, again: int, sizes: list[int]
) -> None:
    calls: list[int] = []

    @pipelines.batched
    def step(batch: Batch) -> Batch:
        calls.append(batch.size)
        if len(calls) <= down or poison in batch["n"].values():
            raise ValueError if down < 0 else ConnectionError
        return batch

    with retried(step) as executor:
        outcomes = executor.run_many(records(4))
    assert calls == sizes
    assert [number for number, outcome in enumerate(outcomes) if isinstance(outcome, StepError)] == (
        [] if poison is None else [poison]
    )
    assert executor.metrics["s"]["streamer_step_retries"].value == again


def test_a_batch_that_is_more_than_may_be_run_again_is_searched_at_once() -> None:
    calls: list[int] = []

    @pipelines.batched
    def step(batch: Batch) -> Batch:
        calls.append(batch.size)
        raise ConnectionError

    with retried(step, attempts=2) as executor:
        executor.run_many(records(101))
    assert calls[:2] == [101, 50]
    assert executor.metrics["s"]["streamer_step_retries"].value == 100


def test_the_counter_is_there_before_the_first_retry() -> None:
    with retried(Backend({})) as executor:
        readings = [reading for reading in executor.metrics.readings() if reading.name == "streamer_step_retries"]
    assert [reading.samples for reading in readings] == [(), [(("s",), 0.0)]]


def test_an_outage_of_a_minute_causes_a_tenth_more_calls_at_most(caplog: pytest.LogCaptureFixture) -> None:
    tenths = 10_000
    calls = 0
    down = False

    def run(batch: Batch) -> Result:
        nonlocal calls
        calls += batch.size
        return Result(batch.take([]), dict.fromkeys(batch.rows.tolist(), ConnectionError())) if down else Result(batch)

    budget = RetryBudget(lambda: tenths / 10)
    retrying = Retrying("s", Retry(on=["OSError"], wait=0), (OSError,), budget, CounterMeter("c", ""))
    batch = Batch.of(records(100))
    done = []
    with caplog.at_level(logging.WARNING):
        # Thirty seconds before it, a minute of outage, and what comes after.
        for seconds in (30, 60, 90):
            calls = 0
            down = seconds == 60
            for _ in range(seconds * 10):
                retrying.run(batch, run, no_search)
                tenths += 1
            done.append(calls)
    assert done[0] == 30_000
    assert 60_000 < done[1] <= 66_000
    assert done[2] == 90_000
    assert "s: too many records fail to run all of them again" in caplog.text
    assert len(caplog.records) == 1
    # Long after it, some of few rows are run again.
    down, calls = True, 0
    retrying.run(Batch.of(records(60)), run, no_search)
    assert calls == 180


def test_few_rows_are_all_run_again_and_of_more_than_the_budget_the_first() -> None:
    budget = RetryBudget(lambda: 0.0)
    assert budget.take(60) == 60
    assert budget.take(60, whole=True) == 0
    assert budget.take(60) == 40
    budget.ran(2000)
    assert budget.take(500) == 100


def test_executors_that_are_opened_with_the_same_policy_share_what_may_be_run_again() -> None:
    backend = Backend(dict.fromkeys(range(61), 99))
    policies = {"FUNCTION": StepPolicy(Retry(on=["ConnectionError"], attempts=2, wait=0))}
    pipeline = Sequence([Function(backend, name="s")])
    with pipeline.open(steps=policies) as first, pipeline.open(steps=policies) as second:
        first.run_many(records(60))
        second.run_many(records(61))
        counters = [executor.metrics.of("s").counter("streamer_step_retries") for executor in (first, second)]
    assert [counter.value for counter in counters] == [60, 40]


def test_waits_double_up_to_a_bound_and_are_shorter_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    retry = Retry(on=["OSError"], attempts=9, wait=0.2)
    longest = [retry.longest_wait(number) for number in range(9)]
    assert longest == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0]
    assert Retry(on=["OSError"], wait=60).longest_wait(3) == 60
    stopping = threading.Event()
    waits: list[float] = []
    monkeypatch.setattr(stopping, "wait", lambda seconds: waits.append(seconds))
    step = Function(Backend({0: 99}), name="s")
    with Sequence([step]).open(steps={"s": StepPolicy(retry)}, stopping=stopping) as executor:
        executor.run_many(records(1))
    assert all(bound / 2 <= wait <= bound for wait, bound in zip(waits, longest[:8], strict=True))


def test_a_wait_ends_when_the_service_stops_and_rows_are_run_once_more() -> None:
    stopping = threading.Event()
    backend = Backend({0: 99})
    policy = StepPolicy(Retry(on=["ConnectionError"], attempts=9, wait=10_000))
    with Sequence([Function(backend, name="s")]).open(steps={"s": policy}, stopping=stopping) as executor:
        timer = threading.Timer(0.05, stopping.set)
        timer.start()
        assert isinstance(executor.run_many(records(1))[0], StepError)
        timer.join()
    assert backend.calls[0] == 2
