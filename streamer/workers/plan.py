"""`Plan`: what the parent of workers has to know of their services, and `planned`, which has a short-lived process find
it out: reading service files imports much that the parent is to do without."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

from pipelines.errors import DefinitionError, StreamerError
from streamer.guarding import Guard

MODULE: Final = "streamer.workers.planning"
"""It reads `Asked` as JSON from standard input, and prints a `Plan` or an error as JSON."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line says about services that workers are to run."""

    workers: int
    files: Sequence[str]
    start_from: str | None = None
    runners: Sequence[str] = ()
    no_code: bool = False
    env: Sequence[str] = ()
    allowed: Sequence[str] = ()
    log_json: bool = False
    """Whether warnings are written to stderr as JSON lines."""

    @property
    def arguments(self) -> list[str]:
        """The options of `streamer run` with which each worker runs the services; files and what is done once are not
        among them."""
        repeated = {"--runner": self.runners, "--env": self.env, "--files": self.allowed}
        return [
            *(["--no-code"] if self.no_code else []),
            *(word for name, values in repeated.items() for value in values for word in (name, value)),
        ]

    def to_json(self) -> str:
        """As the planning process reads it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Asked:
        """The same as it was written by `to_json`."""
        return cls(**json.loads(text))


class PlannedService(NamedTuple):
    """What the parent has to know of a service."""

    name: str
    stuck: float
    """Its `limits.stuck`."""
    listen: str | None = None
    """The address of its control port; `None`: it has none."""
    token: str | None = None
    hosts: tuple[str, ...] = ()
    """As in `control`."""


class Plan(NamedTuple):
    """The services that each worker runs."""

    services: tuple[PlannedService, ...]

    def to_json(self) -> str:
        """As the parent reads it."""
        return json.dumps({"services": self.services})

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """The plan. Raises `StreamerError`, or `DefinitionError` for wrong files, if the text tells of an error."""
        document = json.loads(text)
        if "error" in document:
            problems = document["error"]
            raise DefinitionError(*problems) if document["wrong"] else StreamerError(*problems)
        return cls(
            tuple(
                PlannedService(name, stuck, listen, token, tuple(hosts))
                for name, stuck, listen, token, hosts in document["services"]
            )
        )


def failure(problems: Sequence[str], *, wrong: bool) -> str:
    """What the planning process prints in place of a plan; `wrong`: the files are, as with a `DefinitionError`."""
    return json.dumps({"error": list(problems), "wrong": wrong})


def planned(asked: Asked, guard: Guard) -> Plan:
    """The plan for what is asked, after all that is to be done once, before workers start (`--from`).

    `guard` ends the other process if this one is killed meanwhile.

    Raises `DefinitionError` for wrong files and for services that cannot be run by several processes, `StreamerError`
    for brokers that refuse.
    """
    command = [sys.executable, "-m", MODULE]
    # In a session of its own: Ctrl-C reaches this process only, and ends the other by the guard.
    with subprocess.Popen(  # noqa: S603  the command is ours, and no shell reads it
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        guard.add(process.pid)
        answer, _ = process.communicate(asked.to_json())
        guard.remove(process.pid)
    if process.returncode != 0:
        files = ", ".join(asked.files)
        raise StreamerError(f"{files}: the process that reads the files ended with exit code {process.returncode}")
    return Plan.from_json(answer)
