"""`timeout`: the call of an async function for a record is cancelled, and only that record fails."""

from __future__ import annotations

import asyncio
from collections import Counter

from pipelines import Data, Function, Retry, Sequence, StepError, StepPolicy


class Server:
    """Answers at once, but for some calls, which it never answers."""

    def __init__(self, hangs: dict[int, int]) -> None:
        self.hangs = hangs
        self.cancelled: Counter[int] = Counter()

    async def __call__(self, data: Data) -> Data:
        number = data["n"]
        if self.hangs.get(number, 0) > 0:
            self.hangs[number] -= 1
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                self.cancelled[number] += 1
                raise
        if number == 7:
            raise TimeoutError("the server's own")
        return data


def records(count: int) -> list[Data]:
    return [Data({"n": number}) for number in range(count)]


def test_of_a_hundred_calls_one_that_hangs_fails_alone() -> None:
    server = Server({3: 99})
    step = Function(server, name="s", concurrency=8)
    with Sequence([step]).open(steps={"FUNCTION": StepPolicy(timeout=0.05)}) as executor:
        outcomes = executor.run_many(records(100))
    failed = {number: outcome for number, outcome in enumerate(outcomes) if isinstance(outcome, StepError)}
    assert failed.keys() == {3, 7}
    assert str(failed[3]) == "s: TimeoutError: the function took longer than 0.05 s (timeout)"
    assert str(failed[7]) == "s: TimeoutError: the server's own"
    # Once: the hanging call costs one timeout, and the others did not wait for it.
    assert server.cancelled == {3: 1}


def test_a_call_that_timed_out_can_be_retried() -> None:
    server = Server({1: 1, 2: 99})
    policy = StepPolicy(Retry(on=["TimeoutError"], attempts=2, wait=0.0), timeout=0.05)
    with Sequence([Function(server, name="s", concurrency=4)]).open(steps={"s": policy}) as executor:
        outcomes = executor.run_many(records(3))
    assert [isinstance(outcome, Data) for outcome in outcomes] == [True, True, False]
    assert server.cancelled == {1: 1, 2: 2}
