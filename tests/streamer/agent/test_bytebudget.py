"""The bound on bytes under way."""

from __future__ import annotations

import random
import threading
import time

from streamer.agent.batchqueue import ByteBudget


def test_bytes_beyond_the_limit_wait_until_others_are_released() -> None:
    budget = ByteBudget(100)
    assert budget.reserve(60, 0.0)
    assert not budget.reserve(41, 0.0)
    assert budget.reserve(40, 0.0)
    budget.release(60)
    assert budget.reserve(60, 0.0)
    assert budget.reserved == 100


def test_a_batch_larger_than_the_limit_passes_alone() -> None:
    budget = ByteBudget(100)
    assert budget.reserve(1000, 0.0)
    assert not budget.reserve(1, 0.0)
    budget.release(1000)
    assert budget.reserve(1, 0.0)
    assert not budget.reserve(1000, 0.0)


def test_a_waiting_thread_goes_on_as_soon_as_there_is_room() -> None:
    budget = ByteBudget(100)
    assert budget.reserve(100, 0.0)
    entered: list[bool] = []
    waiting = threading.Thread(target=lambda: entered.append(budget.reserve(50, 20.0)))
    waiting.start()
    while not budget.is_short:
        time.sleep(0.001)
    began = time.monotonic()
    budget.release(100)
    waiting.join(60)
    assert entered == [True]
    assert time.monotonic() - began < 5


def test_it_is_short_when_half_is_taken_or_somebody_waits() -> None:
    budget = ByteBudget(100)
    assert not budget.is_short
    assert budget.reserve(50, 0.0)
    assert not budget.is_short
    waiting = threading.Thread(target=lambda: budget.reserve(80, 0.5))
    waiting.start()
    deadline = time.monotonic() + 60
    while not budget.is_short:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    waiting.join()
    assert not budget.is_short
    assert budget.reserve(1, 0.0)
    assert budget.is_short


def test_many_that_come_and_go_never_exceed_it() -> None:
    budget, worst = ByteBudget(100), [0]

    def come_and_go(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(200):
            size = chance.randrange(1, 100)
            while not budget.reserve(size, 0.01):
                pass
            worst[0] = max(worst[0], budget.reserved)
            budget.release(size)

    threads = [threading.Thread(target=come_and_go, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert budget.reserved == 0
    assert worst[0] <= 100
