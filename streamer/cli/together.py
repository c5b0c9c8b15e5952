"""Several agents in one process, which stop together."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from streamer.agent.agent import Agent
from streamer.agent.summary import Summary
from streamer.cli.process import pass_over_what_stays
from streamer.cli.signals import draining

WATCH = 0.05
"""Seconds between two checks whether an agent has ended."""


def run_together(
    agents: Sequence[Agent], *, started: Callable[[Agent], None], note: str = "", keep_going: bool = False
) -> list[Summary]:
    """Run all agents until each has ended; a signal drains all, and so does the failure of one.

    `started` is called for each agent that runs, `note` is written to stderr at the first signal. If an agent cannot be
    opened, its error is raised after the others were drained. With `keep_going` the others run on in both cases, and
    the failure is in the agent's summary only.
    """

    def stop() -> None:
        for agent in agents:
            agent.stop()

    running: list[Agent] = []
    with draining(stop, note):
        try:
            for agent in agents:
                try:
                    agent.start()
                except Exception:
                    if not keep_going:
                        raise
                    # It is logged, and in the summary of this agent.
                    running.append(agent)
                    continue
                running.append(agent)
                started(agent)
            pass_over_what_stays()
            _watch(running, (lambda: None) if keep_going else stop)
        except BaseException:
            stop()
            for agent in running:
                agent.join()
            raise
        return [agent.join() for agent in running]


def _watch(running: Sequence[Agent], at_failure: Callable[[], None]) -> None:
    while any(agent.summary is None for agent in running):
        if any(agent.summary is not None and agent.summary.reason == "failed" for agent in running):
            at_failure()
        time.sleep(WATCH)
