"""`OpenRunner`: the runner of a step, which is an executor's own or, if it has to be alone, that of all executors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from pipelines.executors.shared import Shared
from pipelines.runners.runner import Runner


class OpenRunner(NamedTuple):
    """A runner, and how it is called and closed."""

    runner: Runner
    turn: threading.Lock | None
    """Held while the runner runs, if all executors use it."""
    close: Callable[[], None]
    """Closes the runner, unless other executors still use it."""


def open_runner(step: str, create: Callable[[], Runner], shared: Shared, opening: int = 0) -> OpenRunner:
    """The runner that `create` makes; of one that is `alone` the first that was made for the step in `shared`.

    `step` is the step's name, with the way to it; `opening` as in `OpenContext`. Raises what `create` raises.
    """
    # Another opening is there for other files.
    key = ("alone", opening, step)
    lone: OpenRunner | None = shared.find(key)
    if lone is None:
        runner = create()
        if not runner.alone:
            return OpenRunner(runner, None, runner.close)
        made = OpenRunner(runner, threading.Lock(), lambda: shared.release(key))
        lone = shared.get(key, lambda: made, lambda entry: entry.runner.close())
        if lone is not made:
            # Another thread has opened the step meanwhile.
            runner.close()
    return lone
