"""An event loop in a thread of its own with a Faust app in it, whose connectors a test uses from another thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Self, TypeVar

import faust
from waiting import PATIENCE

Result = TypeVar("Result")


class FaustLoop:
    """`with FaustLoop(bootstrap) as loop:` has an app in `loop.app`, which is not started but for its producer."""

    app: faust.App

    def __init__(self, bootstrap: str | None = None, **settings: Any) -> None:
        self._bootstrap = bootstrap
        self._settings = settings
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run this in the loop, and wait for it."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(PATIENCE)

    def __enter__(self) -> Self:
        self._thread.start()
        self.run(self._begin())
        return self

    async def _begin(self) -> None:
        broker = f"kafka://{self._bootstrap or '127.0.0.1:1'}"
        self.app = faust.App("test", broker=broker, store="memory://", web_enabled=False, **self._settings)
        if self._bootstrap is not None:
            await self.app.maybe_start_producer()

    def __exit__(self, *exception: object) -> None:
        self.run(self._end())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE)
        self.loop.close()

    async def _end(self) -> None:
        if self._bootstrap is not None:
            await self.app.producer.stop()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)
