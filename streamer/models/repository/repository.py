"""`ModelRepository`: a folder whose models are services of one process, which are loaded and unloaded while it runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from connectors.http.endpoint.listener import Listener
from connectors.http.endpoint.repository.models import OFF, UNLOADED, Entry, Outcome, Verb
from pipelines.errors import DefinitionError, StreamerError, nearest
from streamer.agent.agent import Agent
from streamer.agent.summary import Summary
from streamer.definition.service import Service
from streamer.definition.serving import Place, nothing_in, places_of
from streamer.models.giveback import give_back
from streamer.models.marks import Caution
from streamer.models.repository.commands import Command, Commands
from streamer.models.repository.endpoints import Endpoints, LoadedModel
from streamer.models.repository.loading import Loader
from streamer.models.repository.parameters import Parameters
from streamer.observe.logs import logger
from streamer.observe.shown import masked

MOST_COMMANDS: Final = 1000
"""How many commands may wait."""
WATCH: Final = 0.2
"""Seconds between two looks whether a model has ended by itself."""
STARTS: Final = 10.0
"""Seconds that a model which is open may take until it answers, before it takes the place of another."""
SUPERSEDED: Final = "superseded: a later command about the same model says otherwise"


class ModelRepository:
    """Loads all models of a folder, those that can be, and loads and unloads as clients say.

    One thread carries out all commands, in their order; `stop` and the methods of `Repository` may be called from any.
    """

    def __init__(
        self,
        loader: Loader,
        *,
        controlled: bool = False,
        loaded: Callable[[Agent], None] = lambda agent: None,
    ) -> None:
        """`controlled`: clients may load and unload. `loaded` is called for each model that answers."""
        self._loader = loader
        self._controlled = controlled
        self._loaded = loaded
        self._log = logger(repository=str(loader.folder))
        self._guard = threading.Lock()
        self._endpoints = Endpoints()
        self._failed: dict[str, str] = {}
        """Why models could not be loaded, or ended, by name."""
        self._places: Mapping[str, Place] = {}
        self._commands = Commands(MOST_COMMANDS)
        self._opening: Agent | None = None
        self._summaries: dict[str, Summary] = {}
        """What became of each endpoint, over all its loads."""
        self._stopped = False
        self._first_error: Exception | None = None
        self._listener: Listener | None = None
        self._thread = threading.Thread(target=self._run, name="repository", daemon=True)

    def start(self) -> None:
        """Listen, and begin to load all models of the folder.

        Raises `DefinitionError` if there is none, and `ConnectorError` where the address cannot be had.
        """
        places = self._look()
        if not places and not self._controlled:
            raise DefinitionError(nothing_in(self._loader.folder))
        self._listener = Listener.keep(self._loader.address, self)
        for name in places:
            self._commands.put(Command("load", name, name, by_itself=True))
        self._thread.start()

    def stop(self) -> None:
        """Load no more, and have all models finish what they accepted. Returns at once."""
        self._stopped = True
        for command in self._commands.close():
            command.settle(Outcome(command.name, 503, "the server is stopping"))
        with self._guard:
            agents = [each.agent for each in self._endpoints.values()]
        for agent in (*agents, self._opening):
            if agent is not None:
                agent.stop()

    def join(self) -> list[Summary]:
        """Wait for the end; what became of each model. Raises the first error where none could be loaded."""
        while self._thread.is_alive():
            # In short waits, so that signals are served by the main thread.
            self._thread.join(WATCH)
        if self._first_error is not None and not self._summaries and not self._stopped:
            raise self._first_error
        return [*self._summaries.values()]

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of HTTP."""
        assert self._listener is not None
        return self._listener.address

    @property
    def controlled(self) -> bool:
        """See `Repository.controlled`."""
        return self._controlled

    def entries(self) -> list[Entry]:
        """See `Repository.entries`."""
        self._look()
        return self._known()

    def entry(self, name: str) -> Entry | None:
        """See `Repository.entry`."""
        with self._guard:
            endpoint = self._endpoints.get(name)
            failed = self._failed.get(name)
        if endpoint is not None:
            return endpoint.entry
        if name not in self._places and failed is None:
            return None
        return _absent(name, self._commands.loads(), failed)

    def trouble(self) -> str | None:
        """See `Repository.trouble`."""
        if self._commands.closed:
            return "stopping"
        wanted = (entry for entry in self._known() if entry.state != "READY" and entry.reason != UNLOADED)
        return next((f"{entry.name}: {entry.reason}" for entry in wanted), None)

    def _known(self) -> list[Entry]:
        """All models, as far as the folder was looked at."""
        with self._guard:
            endpoints = [*self._endpoints.values()]
            failed = dict(self._failed)
        entries = {each.name: each.entry for each in endpoints}
        loads = self._commands.loads()
        for name in (*self._places, *failed):
            if name not in entries:
                entries[name] = _absent(name, loads, failed.get(name))
        return [*entries.values()]

    def command(self, verb: Verb, name: str, parameters: Mapping[str, Any]) -> Future[Outcome]:
        """See `Repository.command`."""
        future: Future[Outcome] = Future()
        if not self._controlled:
            future.set_result(Outcome(name, 403, OFF))
            return future
        try:
            wanted = Parameters.of(parameters) if verb == "load" else Parameters()
        except StreamerError as error:
            future.set_result(Outcome(name, 400, str(error)))
            return future
        with self._guard:
            model = self._endpoints.model_of(name, self._places)
        if not self._commands.put(Command(verb, name, model, wanted, [future])):
            why = "the server is stopping" if self._commands.closed else "too many commands wait; send it again later"
            future.set_result(Outcome(name, 503, why))
        return future

    def _look(self) -> Mapping[str, Place]:
        try:
            self._places = places_of(self._loader.folder)
        except OSError as error:
            # What is loaded goes on; the folder may come back.
            self._log.warning("the folder of models cannot be read", error=str(error))
        return self._places

    def _run(self) -> None:
        at_first = True
        while not self._commands.closed:
            command = self._commands.take(WATCH)
            if command is not None:
                outcome = self._outcome(command)
                self._commands.done()
                command.settle(outcome)
                at_first = at_first and command.by_itself
            elif at_first:
                at_first = False
                if not self._endpoints and not self._controlled:
                    # Nothing could ever answer.
                    self._commands.close()
            self._watch()
        self._end()

    def _outcome(self, command: Command) -> Outcome:
        try:
            command = self._resolved(command)
            if self._is_overtaken(command):
                return Outcome(command.name, 409, SUPERSEDED)
            return self._load(command) if command.verb == "load" else self._unload(command)
        except Exception as error:  # noqa: BLE001 - any error is the answer, and the others go on
            text = masked(str(error) if isinstance(error, StreamerError) else f"{type(error).__name__}: {error}")
            if self._commands.closed:
                return Outcome(command.name, 503, "the server is stopping")
            tell = self._log.error if command.by_itself else self._log.warning
            tell(f"a model cannot be {command.verb}ed", model=command.name, error=text)
            if command.by_itself:
                self._first_error = self._first_error or error
            return Outcome(command.name, 400, text)

    def _resolved(self, command: Command) -> Command:
        """The load of an endpoint with a name of its own is that of its model with its parameters."""
        endpoint = self._endpoints.get(command.name)
        if command.verb == "unload" or endpoint is None or command.name in self._places or command.parameters.fields:
            return command
        parameters = replace(endpoint.parameters, share=command.parameters.share)
        return replace(command, name=endpoint.model, model=endpoint.model, parameters=parameters)

    def _is_overtaken(self, command: Command) -> bool:
        """Whether the next command about the same model undoes this one: all ends the same if this is left out."""
        after = self._commands.after(command)
        if after is None or after.verb == command.verb:
            return False
        if command.verb == "load":
            return command.parameters.share and after.name == self._named_for(command)
        endpoint = self._endpoints.get(command.name)
        return (
            endpoint is not None
            and endpoint.workers == 1
            and after.parameters.share
            and endpoint.parameters.key == after.parameters.key
            and self._named_for(after, without=endpoint.name) == endpoint.name
        )

    def _named_for(self, command: Command, without: str | None = None) -> str:
        return self._endpoints.named_for(command.name, command.parameters, self._places, without)

    def _load(self, command: Command) -> Outcome:
        places = self._look()
        place = places.get(command.name)
        if place is None:
            raise DefinitionError(_unknown(command.name, [*places]))
        name = self._named_for(command)
        endpoint = self._endpoints.get(name)
        if endpoint is None:
            caution = Caution.OTHERS if command.by_itself else Caution.NONE
            self._load_first(LoadedModel(name, command.name, command.parameters), place, caution)
        else:
            self._load_again(endpoint, place, 0 if command.parameters.share else 1)
        return Outcome(name)

    def _service(self, endpoint: LoadedModel, place: Place, workers: int) -> Service:
        if self._controlled:
            self._loader.check(place)
        return self._loader.service(place, endpoint.name, endpoint.parameters, workers - 1)

    def _load_first(self, endpoint: LoadedModel, place: Place, caution: Caution) -> None:
        with self._guard:
            self._failed.pop(endpoint.name, None)
            self._endpoints[endpoint.name] = endpoint
        try:
            self._open(endpoint, place, endpoint.workers, caution)
        except BaseException as error:
            with self._guard:
                del self._endpoints[endpoint.name]
                if endpoint.name == endpoint.model:
                    self._failed[endpoint.name] = masked(str(error))
            give_back()
            raise
        endpoint.state = "READY"
        self._log.info("loaded", model=endpoint.name)
        assert endpoint.agent is not None
        self._loaded(endpoint.agent)

    def _load_again(self, endpoint: LoadedModel, place: Place, more: int) -> None:
        """Open it anew beside the current one if there is something new, or to have more workers."""
        workers = endpoint.workers + more
        service = self._service(endpoint, place, workers)
        seen = self._loader.seen(service)
        if not more and endpoint.seen is not None and service == endpoint.seen[0] and self._loader.stays(service):
            self._follow(endpoint)
            return
        if not more and seen == endpoint.seen:
            return
        self._replace(endpoint, place, workers)
        endpoint.workers = workers
        self._log.info("loaded again", model=endpoint.name, workers=workers)

    def _follow(self, endpoint: LoadedModel) -> None:
        """Have its agent look for new files, and wait until it has used them."""
        following = None if endpoint.agent is None else endpoint.agent.following
        if following is None:
            raise StreamerError("no new version can take over, as it is not open; unload it, and load it again")
        looked = following.reload()
        while not self._commands.closed and not looked.wait(WATCH):
            pass
        deadline = time.monotonic() + STARTS
        while following.offered is not None and not self._commands.closed and time.monotonic() < deadline:
            time.sleep(0.005)
        for version in following.failed.values():
            raise StreamerError(f"version {version.label} cannot be used: {version.reason}")

    def _replace(self, endpoint: LoadedModel, place: Place, workers: int) -> None:
        before = endpoint.agent
        assert before is not None
        self._loader.check_replaceable(before.service)
        self._open(endpoint, place, workers, Caution.NONE)
        self._finish(before)
        del before
        give_back()

    def _open(self, endpoint: LoadedModel, place: Place, workers: int, caution: Caution) -> None:
        """Have a new agent run it, which takes over what clients ask. If that fails all stays as it was."""
        service = self._service(endpoint, place, workers)
        seen = self._loader.seen(service)
        agent = self._loader.agent(service, caution, endpoint.agent)
        self._opening = agent
        try:
            if self._commands.closed:
                raise StreamerError("the server is stopping")
            agent.start()
            deadline = time.monotonic() + STARTS
            while agent.summary is None and agent.ready() == "starting" and time.monotonic() < deadline:
                time.sleep(0.005)
            if agent.summary is not None:
                raise StreamerError(agent.summary.error or "it ended at once")
            self._loader.observe(endpoint.name, agent)
        except BaseException:
            agent.stop()
            with suppress(StreamerError):
                agent.join()
            raise
        finally:
            self._opening = None
        assert self._listener is not None
        self._listener.admit(endpoint.name)
        with self._guard:
            endpoint.agent, endpoint.seen = agent, seen
        if self._commands.closed:
            # It may have been opened after `stop` has looked for it.
            agent.stop()

    def _unload(self, command: Command) -> Outcome:
        endpoint = self._endpoints.get(command.name)
        if endpoint is None:
            known = [*dict.fromkeys([*self._look(), *self._endpoints, *self._failed])]
            if command.name not in known and command.model not in known:
                raise DefinitionError(_unknown(command.name, known))
            with self._guard:
                self._failed.pop(command.name, None)
            return Outcome(command.name)
        if endpoint.workers > 1:
            place = self._look().get(endpoint.model)
            if place is None:
                raise DefinitionError(f'"{endpoint.model}" is no longer in the repository; unload all of its workers')
            self._replace(endpoint, place, endpoint.workers - 1)
            endpoint.workers -= 1
            return Outcome(command.name)
        endpoint.state = "UNLOADING"
        agent, endpoint.agent = endpoint.agent, None
        if agent is not None:
            self._finish(agent)
            self._loader.leave(endpoint.name)
            del agent
            give_back()
        with self._guard:
            del self._endpoints[endpoint.name]
        self._log.info("unloaded", model=endpoint.name)
        return Outcome(command.name)

    def _finish(self, agent: Agent) -> None:
        agent.stop()
        self._count(agent.join())

    def _count(self, summary: Summary) -> None:
        before = self._summaries.get(summary.service)
        self._summaries[summary.service] = summary if before is None else before.followed_by(summary)

    def _watch(self) -> None:
        """Notice models that have ended by themselves."""
        for endpoint in [*self._endpoints.values()]:
            agent = endpoint.agent
            if agent is None or agent.summary is None or self._commands.closed:
                continue
            reason = agent.summary.error or f"it has {agent.summary.reason}"
            self._log.error("a model has ended", model=endpoint.name, error=reason)
            self._count(agent.summary)
            self._loader.leave(endpoint.name)
            with self._guard:
                del self._endpoints[endpoint.name]
                self._failed[endpoint.name] = reason
            if not self._endpoints and not self._controlled:
                self._commands.close()

    def _end(self) -> None:
        endpoints = [*self._endpoints.values()]
        for endpoint in endpoints:
            endpoint.state = "UNLOADING"
            if endpoint.agent is not None:
                endpoint.agent.stop()
        for endpoint in endpoints:
            if endpoint.agent is not None:
                self._count(endpoint.agent.join())
                self._loader.leave(endpoint.name)
        assert self._listener is not None
        self._listener.end()


def _unknown(name: str, known: Sequence[str]) -> str:
    there = ", ".join(known) or "none"
    return f'there is no model "{name}" in the repository{nearest(name, known)}; there is {there}'


def _absent(name: str, loads: Collection[str], failed: str | None) -> Entry:
    """A model that is not loaded."""
    if name in loads:
        return Entry(name, "", "LOADING", "it waits to be loaded")
    return Entry(name, "", "UNAVAILABLE", UNLOADED if failed is None else failed)
