"""A thread with an event loop, in which a step awaits the user's `async` functions."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from pipelines.errors import RAISED, StreamerError, blamed

Given = TypeVar("Given")
Returned = TypeVar("Returned")


class EventLoop:
    """An event loop of its own in a thread of its own, until it is closed.

    The caller may have a loop that runs already (in a notebook, for example), and objects that a function keeps open,
    such as the connections of an HTTP client, belong to the loop in which they were opened: hence one loop from `open`
    to `close`, which is not the caller's.
    """

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def wait_for(self, work: Coroutine[Any, Any, Returned]) -> Returned:
        """The result of a coroutine that runs in the loop, or its exception."""
        return asyncio.run_coroutine_threadsafe(_without_exit(work), self._loop).result()

    def map(
        self,
        function: Callable[[Given], Awaitable[Returned]],
        given: Sequence[Given],
        concurrency: int,
        timeout: float | None = None,
    ) -> list[Returned | Exception]:
        """The result for each of `given`, in order, or the error that it raised; so many at a time at most.

        A call that takes longer than `timeout` seconds is cancelled, and its error is a `TimeoutError`.
        """
        return self.wait_for(_all(function if timeout is None else _timed(function, timeout), given, concurrency))

    def close(self) -> None:
        """End the loop and its thread; tasks that still run in it are cancelled."""
        self._closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            while not self._closed:
                # A task that the user's code began may exit: asyncio raises that here, and where the task is awaited.
                with contextlib.suppress(SystemExit):
                    self._loop.run_forever()
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()


async def _without_exit(work: Coroutine[Any, Any, Returned]) -> Returned:
    try:
        return await work
    except SystemExit as error:
        raise blamed(error) from error


def _timed(function: Callable[[Given], Awaitable[Returned]], timeout: float) -> Callable[[Given], Awaitable[Returned]]:
    async def call(given: Given) -> Returned:
        try:
            async with asyncio.timeout(timeout) as scope:
                return await function(given)
        except TimeoutError as error:
            if not scope.expired():
                raise
            raise TimeoutError(f"the function took longer than {timeout:g} s (timeout)") from error

    return call


async def _all(
    function: Callable[[Given], Awaitable[Returned]], given: Sequence[Given], concurrency: int
) -> list[Returned | Exception]:
    results: list[Returned | Exception] = [asyncio.InvalidStateError()] * len(given)
    left = iter(enumerate(given))

    async def work() -> None:
        # Each takes the next record when it has done one: no more tasks than may run.
        for position, record in left:
            try:
                results[position] = await function(record)
            except RAISED as error:  # any exception belongs to that record
                results[position] = blamed(error)
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                if task is not None and task.cancelling():
                    raise
                failure = StreamerError("a task that the function waited for was cancelled")
                failure.__cause__ = error
                results[position] = failure

    await asyncio.gather(*(work() for _ in range(min(concurrency, len(given)))))
    return results
