"""`Openings`: opens the versions of a service's variants."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from pathlib import Path

from pipelines.errors import DefinitionError, StreamerError
from pipelines.executors.executor import Executor
from pipelines.executors.state.handover import differences
from streamer.definition.refusals import place_of
from streamer.definition.service import Service
from streamer.models.choice import Choice
from streamer.models.files import ModelFiles, State
from streamer.models.following import check_ports
from streamer.models.lineup import Lineup
from streamer.models.marks import Caution, Left, Marks
from streamer.models.settings import CURRENT, weights
from streamer.models.sharing import Sharing
from streamer.models.tally import Tally
from streamer.models.version import Version
from streamer.observe.logs import logger

Opened = Callable[[str, State, int], list[Executor]]
"""Opens as many pipelines of a variant as may run at the same time, with these files, as the opening of this number."""


class Openings:
    """The files of each variant's models, and the versions that a service begins with."""

    def __init__(self, service: Service, opened: Opened, caution: Caution = Caution.ALONE) -> None:
        """`caution`: about versions that ended the process when they were opened before."""
        self._service = service
        self._caution = caution
        self._opened = opened
        self._marks = Marks(service.name)
        self._in_use: dict[str, State] = {}
        self.refused: dict[str, Version] = {}
        """The versions, by variant, that are not used because they ended the process when they were opened before."""
        variants = service.variants
        self._versions = {name: variants[name].version for name in service.variant_names if name in variants}
        # Variants without fields of their own have the files of all.
        common = ModelFiles(service.pipeline_of(CURRENT))
        self._files = {
            name: ModelFiles(service.pipeline_of(name)) if name in variants and variants[name].set else common
            for name in service.variant_names
        }

    def look(self) -> dict[str, State]:
        """The files that there are now for each variant."""
        return {name: self._looked(name) for name in self._files}

    def _looked(self, name: str, refused: Collection[tuple[Path, int]] = ()) -> State:
        version = self._versions.get(name)
        if version is not None:
            return self._files[name].look(version)
        named = {version for version in self._versions.values() if version is not None}
        return self._files[name].look(None, named, refused)

    def opened(self, name: str, state: State, opening: int) -> list[Executor]:
        """The pipelines of a variant. Raises `StreamerError` if its version is not there, and as opening does."""
        version = self._versions.get(name)
        if version is not None:
            self._files[name].check(version)
        executors = self._opened(name, state, opening)
        self._in_use[name] = state
        return executors

    def beside(self, name: str, state: State, opening: int) -> list[Executor]:
        """The same while another version is in use: if it ends the process, the next start does without it."""
        with self._marks.opening(name, state, self._in_use[name]):
            return self.opened(name, state, opening)

    def end(self) -> None:
        """The process may end now, also while a version is being opened. From any thread."""
        self._marks.end()

    def first(self) -> Lineup:
        """The versions that the service begins with.

        Raises as opening does, and `DefinitionError` for variants that cannot be had side by side; then nothing stays
        open.
        """
        versions: dict[str, Version] = {}
        try:
            for opening, (name, state) in enumerate(self.look().items()):
                try:
                    state, began = self._usable(name, state), time.monotonic()
                    with self._marks.opening(name, state, None):
                        executors = self.opened(name, state, opening)
                    self._marks.clear(name, state)
                    seconds = time.monotonic() - began
                    version = versions[name] = Version(state.label or "1", state, executors, seconds=seconds)
                    if name != CURRENT:
                        check_ports(version, versions[CURRENT])
                except StreamerError as error:
                    if name == CURRENT:
                        raise
                    raise DefinitionError(f"{self._place('variants', name)}variants.{name}: {error}") from error
            self._check_state(versions[CURRENT])
        except BaseException:
            for executor in [executor for version in versions.values() for executor in version.executors]:
                executor.close()
            raise
        return Lineup(versions, self._sharing())

    def begins_with(self, name: str = CURRENT) -> State:
        """The files of a variant that a start opens, without opening them.

        `refused` has the version that it would have opened otherwise. Raises `StreamerError` if there is no other.
        """
        return self._chosen(name, self._looked(name))[0]

    def _usable(self, name: str, newest: State) -> State:
        """The files to begin with; says so where opening them has ended the process before."""
        state, again = self._chosen(name, newest)
        if again is not None:
            logger(service=self._service.name).warning(
                "the process ended while it opened these models, which are opened again",
                version=state.label or "1",
                since=again.since,
                times=again.times,
            )
        return state

    def _chosen(self, name: str, newest: State) -> tuple[State, Left | None]:
        """The newest files that did not end a process, if there are such, else the newest and their mark.

        Raises `StreamerError` if a version that a variant names did, or all of a model beside others.
        """
        state, refused = newest, set[tuple[Path, int]]()
        while (mark := self._marks.left(name, state)) is not None:
            if mark.is_borne(self._caution):
                return state, mark
            if self._versions.get(name) is not None:
                raise StreamerError(mark.reason)
            if name not in self.refused:
                self.refused[name] = Version(state.label or "1", state, state="UNAVAILABLE", reason=mark.reason)
            numbers = {*state.versions.items()}
            in_use = mark.before or {}
            refused |= {(path, number) for path, number in numbers if in_use.get(str(path)) != number} or numbers
            before, state = state, self._looked(name, refused)
            if state == before or state.versions.keys() != newest.versions.keys():
                # There is nothing else.
                reason = self.refused.pop(name).reason
                if mark.before is None and self._caution is Caution.OTHERS:
                    raise StreamerError(reason)
                # It may have been the memory, which two versions needed then.
                return newest, mark
        return state, None

    def _sharing(self) -> Sharing:
        service = self._service
        choice = Choice(weights(service.variants), service.models.sticky)
        asks = any(sink.awaited for sink in service.sinks)
        labels = any(
            each.canary is not None and each.canary.max_labels is not None for each in service.variants.values()
        )
        return Sharing(choice, Tally(choice.names, labels=labels), service.models.keep, asks)

    def _check_state(self, version: Version) -> None:
        if version.executors[0].stateful and len(self._service.variant_names) > 1:
            raise DefinitionError(
                f"{self._place('variants')}variants: a step of the pipeline holds records or state, which cannot be "
                "divided among them; leave them out"
            )
        models = self._service.models
        if models.follow is not None and models.state == "keep" and (never := _own_models(version)):
            raise DefinitionError(
                f"{self._place('models', 'follow')}models.follow: {never}, so that no new version could go on with it; "
                "leave it out, or set models: {state: discard}, with which this step begins anew"
            )

    def _place(self, *keys: str) -> str:
        return place_of(self._service.written, *keys)


def _own_models(version: Version) -> str:
    """Which step cannot hand its state over to a version with other files; empty if all can."""
    executor = version.executors[0] if version.executors else None
    return "" if executor is None else ", ".join(differences(executor, executor).values())


def says_versions(service: Service) -> bool:
    """Whether results name the version that made them: where there may be more than one."""
    return service.models.follow is not None or len(service.variant_names) > 1
