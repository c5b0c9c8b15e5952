"""`LiveModels`: the versions of a service's models at work: new ones take over, a shadow runs along, a canary is
watched."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from pipelines.data.result import Result
from pipelines.executors.executor import Executor
from pipelines.observe.meters import Reading
from streamer.agent.assembly import Assembly
from streamer.agent.runs.batchrun import BatchRun
from streamer.models.canary import Canary
from streamer.models.carrying import carry
from streamer.models.following import Following
from streamer.models.lineup import Lineup
from streamer.models.opening import says_versions
from streamer.models.settings import SHADOW
from streamer.models.shadow import Shadow
from streamer.models.shadowsink import ShadowSink


class LiveModels:
    """What the run thread does for the open versions of the models besides running them. Owned by the run thread."""

    def __init__(self, assembly: Assembly, wake: Callable[[], None], log: Any) -> None:
        """The pipeline is open. `wake` is called, from another thread, when versions wait to take over.

        Raises `ConnectorError` if the shadow has a sink that cannot be opened.
        """
        service, lineup = assembly.service, assembly.open_lineup
        self.following: Following = assembly.following(wake, log)
        """Follows the files of the models. Read by any thread."""
        self.shadow: Shadow | None = None
        """Runs batches once more, on the variant that is a shadow; `None`: there is none. Read by any thread."""
        self._canary: Canary | None = None
        for name, variant in service.variants.items():
            if variant.canary is not None:
                sharing = lineup.sharing
                self._canary = Canary(name, variant.canary, sharing.choice, sharing.tally, log)
        self._assembly = assembly
        self._log = log
        self._says_versions = says_versions(service)
        self._name_results()
        self.look()
        if SHADOW in service.variants:
            # Last, as it begins to work.
            route = assembly.shadow_route
            sink = None if route is None else ShadowSink(route, service.keep, log)
            self.shadow = Shadow(assembly.shadow, log, sink)

    def start(self) -> None:
        """Begin to look for new files, if the service follows them."""
        self.following.start()

    @property
    def offered(self) -> bool:
        """Whether versions wait to take over, so that no batch is begun before that."""
        return self.following.offered is not None

    def take_over(self, emit: Callable[[Result], None]) -> None:
        """Use the versions that are offered; no batch is half run now.

        `emit` gets results of records that steps hold which the new version does not have. Raises `StepError` if such a
        step cannot give them.
        """
        lineup = self.following.take()
        before = self._assembly.replace(lineup)
        try:
            if lineup.current is not before.current and (anew := carry(before.current, lineup.current, emit)):
                self._log.warning("steps begin without what they knew", version=lineup.current.label, steps=anew)
        finally:
            self.following.retire(before)
        self._name_results()
        for version in lineup.versions:
            if version not in before.versions:
                seconds = round(version.seconds, 3)
                self._log.info("a new version has taken over", version=version.label, opened_in=seconds)

    def look(self) -> None:
        """Compare a canary with the current version; to be called about once a second."""
        if self._canary is not None:
            self._canary.look(self._lineup.variants[self._canary.name], time.monotonic())

    def made(self, run: BatchRun) -> Result:
        """What the versions made of a run that is delivered next, for `delivered`."""
        self._assembly.made_by.chosen(run.chosen)
        # A copy, before anything is added to it.
        return run.result if self.shadow is None else replace(run.result)

    def delivered(self, run: BatchRun, made: Result) -> None:
        """The results of a run were sent."""
        if self.shadow is not None:
            self.shadow.offer(run.batch, made)

    def readings(self) -> Iterator[Reading]:
        """The metrics of versions, variants, a canary and a shadow. From any thread."""
        for each in (self.following, self._canary, self.shadow):
            if each is not None:
                yield from each.readings()

    def stop(self) -> None:
        """Open no more versions, and run no more on a shadow, as the service ends. Does not wait for the shadow."""
        self.following.end()
        if self.shadow is not None:
            self.shadow.stop()

    def end(self) -> Sequence[Executor]:
        """Wait for the shadow after `stop`. Returns open pipelines that cannot be closed."""
        hung = None if self.shadow is None else self.shadow.end()
        return () if hung is None else hung.executors

    @property
    def _lineup(self) -> Lineup:
        return self._assembly.open_lineup

    def _name_results(self) -> None:
        if self._says_versions:
            self._assembly.made_by.label = self._lineup.current.label
