"""`Endpoints`: which names the loaded models of a repository have, and with which parameters each was loaded."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from connectors.http.endpoint.repository.models import Entry, State
from streamer.agent.agent import Agent
from streamer.definition.service import Service
from streamer.models.repository.parameters import Parameters

_NUMBERED: Final = re.compile(r"(?P<model>.+)-[0-9]+")


@dataclass(slots=True, eq=False)
class LoadedModel:
    """A model under a name by which requests reach it."""

    name: str
    model: str
    """The name in the repository."""
    parameters: Parameters
    workers: int = 1
    """How many loads it is the answer to that shared nothing."""
    state: State = "LOADING"
    agent: Agent | None = None
    """Runs it."""
    seen: tuple[Service, object] | None = field(default=None, repr=False)
    """Its service, and what its files were, when it was loaded."""

    @property
    def entry(self) -> Entry:
        """As the repository's index shows it."""
        version = "" if self.agent is None or self.agent.version is None else self.agent.version.label
        if self.state != "READY" or self.agent is None:
            return Entry(self.name, version, self.state, self.state.lower())
        trouble = self.agent.ready()
        return Entry(self.name, version, "READY" if trouble is None else "UNAVAILABLE", trouble or "")


class Endpoints(dict[str, LoadedModel]):
    """The loaded models, by the name of their endpoint. Of one model no two have equal parameters."""

    def named_for(
        self, model: str, parameters: Parameters, reserved: Collection[str], without: str | None = None
    ) -> str:
        """The endpoint of a model with these parameters: one that has them, or a name that is free.

        The first keeps the model's name, whatever its parameters; others get the lowest free number behind it. Names
        in `reserved` are not free. `without`: as if this endpoint were not there.
        """
        left = [each for each in self.values() if each.name != without]
        for each in left:
            if each.model == model and each.parameters.key == parameters.key:
                return each.name
        names = {each.name for each in left}
        if model not in names:
            return model
        number = 0
        while (name := f"{model}-{number}") in names or name in reserved:
            number += 1
        return name

    def model_of(self, name: str, models: Collection[str]) -> str:
        """The model that an endpoint of this name is, or would be, of."""
        if name in self:
            return self[name].model
        numbered = _NUMBERED.fullmatch(name)
        return name if name in models or numbered is None else numbered["model"]
