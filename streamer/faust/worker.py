"""A Faust worker in this process, for `streamer run --engine faust`."""

from __future__ import annotations

import tempfile

import faust

from streamer.agent.summary import Summary
from streamer.definition.connectors.written import Written
from streamer.definition.service import Service
from streamer.faust.attaching import app_of


def run(service: Service, written: Written, *, log_level: str = "warning") -> tuple[int, Summary | None]:
    """Run the service in a worker until SIGTERM, SIGINT or a failure.

    Returns the exit code, 0 or 1 if it failed, and the summary of the service, unless it could not even begin. Raises
    `DefinitionError` for settings that Faust cannot honour.
    """
    summaries: list[Summary] = []
    with tempfile.TemporaryDirectory(prefix="streamer-faust-") as folder:
        app = app_of(service, written, on_end=summaries.append, datadir=folder)
        worker = faust.Worker(app, loglevel=log_level.upper(), quiet=True, redirect_stdouts=False)
        try:
            worker.execute_from_commandline()
        except SystemExit as ended:
            return (1 if ended.code else 0), (summaries[-1] if summaries else None)
