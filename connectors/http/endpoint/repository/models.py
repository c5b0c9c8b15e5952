"""`Repository`: what a listener knows of models that come and go; `Models`: the models that are there."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Final, Literal, NamedTuple, Protocol

from connectors.http.endpoint.model import RETRY, ServedModel
from connectors.http.endpoint.request import Answer
from pipelines.errors import nearest

State = Literal["READY", "LOADING", "UNLOADING", "UNAVAILABLE"]
Verb = Literal["load", "unload"]
OFF: Final = (
    "models are not loaded or unloaded by requests here; start it as `streamer serve FOLDER --model-control "
    "--token-file FILE`"
)


class Entry(NamedTuple):
    """A model of the repository, as its index shows it."""

    name: str
    version: str
    state: State
    reason: str = ""
    """Why it is not ready."""


class Outcome(NamedTuple):
    """What became of a command."""

    name: str
    """The endpoint: the name by which requests reach the model."""
    status: int = 200
    error: str | None = None


class Repository(Protocol):
    """A folder of models. All methods may be called from any thread."""

    @property
    def controlled(self) -> bool:
        """Whether requests may load and unload."""

    def entries(self) -> list[Entry]:
        """All models, those that are not loaded, too. Looks into the folder."""

    def entry(self, name: str) -> Entry | None:
        """A model by the name of its endpoint, as it was known last; `None`: there is none."""

    def trouble(self) -> str | None:
        """Why the repository is not ready: a model that is to be there is not; `None`: nothing."""

    def command(self, verb: Verb, name: str, parameters: Mapping[str, Any]) -> Future[Outcome]:
        """Load or unload a model of this name, behind the commands that wait already."""


class Models(dict[str, ServedModel]):
    """The models of a listener by their names."""

    repository: Repository | None = None
    """Where they come from, if they may come and go."""

    @property
    def controlled(self) -> bool:
        """Whether requests may load and unload models."""
        return self.repository is not None and self.repository.controlled

    def absent(self, name: str) -> Answer:
        """The answer to a request for a model that is not there: 503 if it may come by itself, else 404."""
        entry = None if self.repository is None else self.repository.entry(name)
        if entry is None:
            known = f"there is {', '.join(self)}" if self else "there is none"
            return Answer.refusal(404, f'there is no model "{name}"{nearest(name, self)}; {known}')
        if entry.reason == UNLOADED:
            return Answer.refusal(404, f'the model "{name}" is not loaded')
        return Answer.refusal(503, f'the model "{name}" is not ready: {entry.reason or entry.state.lower()}', RETRY)

    def trouble(self) -> str | None:
        """Why not all models are ready; `None`: they are."""
        for model in list(self.values()):
            if (reason := model.served.trouble()) is not None:
                return reason
        if self.repository is not None:
            return self.repository.trouble()
        return None if self else "there is no model"

    def index(self) -> list[dict[str, str]]:
        """The models with their states, as Triton's repository index. With a repository it looks into a folder."""
        ready = {}
        for model in list(self.values()):
            trouble = model.served.trouble()
            state: State = "READY" if trouble is None else "UNAVAILABLE"
            ready[model.name] = Entry(model.name, model.version, state, trouble or "")
        if self.repository is not None:
            for entry in self.repository.entries():
                if entry.state != "READY":
                    ready[entry.name] = entry
                else:
                    ready.setdefault(entry.name, entry)
        return [entry._asdict() for entry in sorted(ready.values())]


UNLOADED: Final = "unloaded"
"""The reason of a model that nobody loaded, or that was unloaded."""
