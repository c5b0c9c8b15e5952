"""`Assembly`: a service's connectors, codecs and executor, built from its definition, opened and closed together."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from connectors.codec import Codec
from connectors.codecs.config import CodecConfig
from connectors.codecs.registry import codec_config, codec_of
from connectors.config import SinkConfig, SourceConfig
from connectors.daemonpool import DaemonPool
from connectors.outbox.wrapping import with_outbox
from connectors.sink import Sink, TransactionalSink
from connectors.source import Served, Source
from pipelines.errors import DefinitionError, StreamerError
from pipelines.executors.executor import Executor
from pipelines.executors.lastshapes import LastShapes
from pipelines.executors.policy import StepPolicy
from pipelines.executors.ports import Ports
from pipelines.executors.shared import Shared
from pipelines.hotpath import choosing
from pipelines.observe.metrics import Metrics
from pipelines.observe.profiler import Profiler
from streamer.agent.runs.clock import Clock
from streamer.agent.runs.parallel import check_parallel
from streamer.definition.hotpaths import PartHotPath
from streamer.definition.openedpipeline import opened_pipeline
from streamer.definition.refusals import check_code, place_of
from streamer.definition.service import Service
from streamer.definition.settings import StateSettings, StateTopicSettings
from streamer.definition.stepsettings import policies
from streamer.delivery.guarantee import guarantee
from streamer.models.files import State
from streamer.models.following import Following
from streamer.models.lineup import Lineup
from streamer.models.marks import Caution
from streamer.models.opening import Openings
from streamer.models.settings import SHADOW
from streamer.models.version import Version
from streamer.observe.memorylimit import MemoryLimit
from streamer.observe.metrics import Measured
from streamer.routing.madeby import MadeBy
from streamer.routing.sinkroute import SinkRoute
from streamer.state.agreement import check_answers
from streamer.state.filestore import FileStore
from streamer.state.store import StateStore
from streamer.state.topicstore import TopicStore
from streamer.tracing.opening import opened_tracing

if TYPE_CHECKING:
    from streamer.tracing.tracing import Tracing


@dataclass(slots=True)
class Assembly:
    """The parts of a service. Sources are opened by their intake threads, everything else by `open`."""

    service: Service
    sources: list[tuple[str, SourceConfig, Source]]
    codecs: dict[str, Codec]
    """The sources' codecs, by the source's name."""
    routes: list[SinkRoute]
    letters: list[SinkRoute]
    """Where failed records go, as `Sinks.letters`."""
    shadow_route: SinkRoute | None = None
    """Where the results of a shadow go; its shadow opens, uses and closes it. `None`: nowhere."""
    _stack: ExitStack = field(default_factory=ExitStack)
    profiler: Profiler | None = None
    """Records the times of stages and steps, while open, if the service has `profile`."""
    draining: threading.Event = field(default_factory=threading.Event)
    """Set when the service stops: then no step waits any more before it runs records again."""
    caution: Caution = Caution.ALONE
    """About versions of the models that ended the process when they were opened before. Set before `open`."""
    ran: dict[str, LastShapes] = field(default_factory=dict)
    """What the models of each variant ran on last."""
    lineup: Lineup | None = None
    """The versions of the models that are open; `None`: the pipeline is not open."""
    _openings: Openings | None = None
    _progress: Callable[[str], None] | None = None
    _shared: Shared = field(default_factory=Shared)
    _pool: DaemonPool | None = None
    _policies: dict[str, StepPolicy] | None = None
    state: StateStore | None = None
    """Where the state of the steps is saved; `None`: it ends with the process."""
    connected: bool = True
    """Whether its sources are those of the service, not others that a test or a notebook put in their place."""
    clock: Clock = field(default_factory=Clock)
    """The time for its steps. Set before `open`."""
    made_by: MadeBy = field(default_factory=MadeBy)
    """Says which version made the results that are being delivered."""
    _busy: Collection[Executor] = ()

    @property
    def all_routes(self) -> list[SinkRoute]:
        """The routes of results and of failed records."""
        return [*self.routes, *self.letters]

    @property
    def result_routes(self) -> list[SinkRoute]:
        """The routes of results, also of those of a shadow, which the service neither waits for nor depends on."""
        return self.routes if self.shadow_route is None else [*self.routes, self.shadow_route]

    @property
    def transactional(self) -> TransactionalSink | None:
        """The first sink, whose transactions the other sinks share; `None` without transactions."""
        if not guarantee(self.service.delivery).transactional:
            return None
        sink = self.routes[0].sink
        if not isinstance(sink, TransactionalSink):
            raise DefinitionError(f'delivery: the sink "{self.routes[0].name}" cannot send in transactions')
        return sink

    @property
    def sources_commit(self) -> bool:
        """Whether the sources commit positions themselves: not if sinks do, or the store of the state."""
        saves = self.state is not None and self.state.commits_positions and bool(self.executor.saving_steps)
        return not (saves or guarantee(self.service.delivery).transactional)

    def check_transactions(self) -> None:
        """Raise `DefinitionError` if positions of the open source cannot be part of the sinks' transactions."""
        first = self.transactional
        if first is None:
            return
        for _, _, source in self.sources:
            for route in self.all_routes:
                why = route.sink.accepts(source) if isinstance(route.sink, TransactionalSink) else "it has none"
                if why is not None:
                    raise DefinitionError(f'delivery: exactly_once: sink "{route.name}": {why}')

    @property
    def executor(self) -> Executor:
        """The open pipeline; with `limits.parallel` the first of them, which are all alike."""
        return self.executors[0]

    @property
    def executors(self) -> Sequence[Executor]:
        """The open pipelines: as many as `limits.parallel`."""
        return self.open_lineup.executors

    @property
    def step_metrics(self) -> list[Metrics]:
        """What the steps' own code counts, in each pipeline that is open for the service's records."""
        return [pipeline.metrics for pipeline in self.open_lineup.pipelines]

    @property
    def open_lineup(self) -> Lineup:
        """The versions of the models that are open. Raises `StreamerError` if the pipeline is not."""
        if self.lineup is None:
            raise StreamerError("the pipeline is not open")
        return self.lineup

    @property
    def version(self) -> Version | None:
        """The current version of the models; `None`: the pipeline is not open."""
        return None if self.lineup is None else self.lineup.current

    def open(self, progress: Callable[[str], None] | None = None) -> None:
        """Load the models, then connect the sinks. If one fails, those before it are closed again."""
        try:
            # Entered first, so that it counts until all is closed.
            memory = self._stack.enter_context(self._memory_limit())
            self.profiler = self._opened_profiler()
            threads = self.service.limits.threads
            # Entered first, so that the pool is closed last.
            self._pool = self._stack.enter_context(DaemonPool(threads, "streamer-step")) if threads else None
            self._stack.callback(self._close_pipelines)
            self._progress = progress
            self._openings = Openings(self.service, self._opened, self.caution)
            self.lineup = self._openings.first()
            # Versions that come later are opened beside the work.
            self._progress = None
            if self.state is not None and self.executor.saving_steps:
                self.state.open()
                self._stack.callback(self.state.close)
            for route in self.all_routes:
                route.sink.open()
                self._stack.callback(route.sink.close)
            memory.set()
        except BaseException:
            self.close()
            raise

    def following(self, wake: Callable[[], None], log: Any) -> Following:
        """Follows the files of the models, once the pipeline is open. `wake` is called when a version is ready."""
        assert self._openings is not None
        models, openings = self.service.models, self._openings
        following = Following(
            openings.look,
            self.open_lineup,
            openings.beside,
            models.follow,
            wake,
            log,
            discard=models.state == "discard",
        )
        following.refuse(self._openings.refused)
        return following

    def shadow(self) -> Version:
        """The version that is the shadow at present."""
        return self.open_lineup.variants[SHADOW]

    def replace(self, lineup: Lineup) -> Lineup:
        """Use these versions from now on; those that were used before, still open."""
        assert self.lineup is not None
        before, self.lineup = self.lineup, lineup
        return before

    def _opened(self, variant: str, files: State, opening: int) -> list[Executor]:
        """As many pipelines of a variant as may run at the same time, with these files."""
        executors: list[Executor] = []
        try:
            # A shadow runs in one thread.
            for number in range(1 if variant == SHADOW else self.service.limits.parallel):
                executors.append(self._open_pipeline(variant, files, opening))
                if not number:
                    check_parallel(self.service.limits.parallel, executors[0].sequential_steps)
        except BaseException:
            for executor in executors:
                executor.close()
            raise
        return executors

    def serve(self, trouble: Callable[[str], str | None], stuck: Callable[[], str | None]) -> None:
        """Tell the sources and their codecs of the open pipeline, before the sources open.

        `trouble` says why the service takes no records of the source of this name, `stuck` why it is to be restarted.
        Raises `DefinitionError` where clients wait for answers, and a step holds or remembers their records.
        """
        awaited = {label for sink in self.service.sinks if sink.awaited for label in sink.takes_from or ()}
        if self.executor.stateful:
            check_answers(self.service)
        ports = self.executor.ports()
        for name, config, source in self.sources:
            needed = ports_for(self.service, config, ports)
            served = Served(
                self.service.name,
                needed,
                name in awaited,
                partial(trouble, name),
                stuck,
                self._label,
                self.made_by.labels,
                self._names,
            )
            source.serves(served)
            self.codecs[name].serves(served)
        for route in self.routes:
            route.made_by = self.made_by
            route.codec.serves(Served(self.service.name, ports, version=self._label, versions=self.made_by.labels))
        if (shadow := self.shadow_route) is not None:
            shadow.codec.serves(Served(self.service.name, ports, version=lambda: shadow.made_by.label or "1"))

    def _label(self) -> str:
        return "1" if self.version is None else self.version.label

    def _names(self) -> Sequence[str]:
        return () if self.lineup is None else self.lineup.names

    def _open_pipeline(self, variant: str, files: State, opening: int) -> Executor:
        # A step that `check_code` cannot see, such as one inside a plug-in's step, is refused when it opens.
        if self._policies is None:
            self._policies = policies(self.service.steps)
        return opened_pipeline(
            self.service,
            self._policies,
            variant=variant,
            pool=self._pool,
            progress=self._progress,
            stopping=self.draining,
            shared=self._shared,
            versions=files.versions,
            opening=opening,
            ran=self.ran.setdefault(variant, LastShapes()),
            clock=self.clock.now,
        )

    def _memory_limit(self) -> MemoryLimit:
        return MemoryLimit(self.service.limits.memory, place_of(self.service.written, "limits", "memory"))

    def _opened_profiler(self) -> Profiler | None:
        profile = self.service.profile
        if profile is None:
            return None
        profiler = Profiler(profile.file, split=profile.split, files=profile.files, process=self.service.name)
        return self._stack.enter_context(profiler)

    def tracing(self, log: Any) -> Tracing | None:
        """Opens what makes the spans of the service, until `close`; `None` unless it has `tracing`."""
        tracing = opened_tracing(self.service, {name: source for name, _, source in self.sources}, log)
        return None if tracing is None else self._stack.enter_context(tracing)

    def hot_paths(self) -> list[PartHotPath]:
        """Which hot path each source, sink and codec takes."""
        paths: list[PartHotPath] = []
        for name, _, source in self.sources:
            paths.append(PartHotPath(f"source {name}", source.hot_path))
            paths.append(PartHotPath(f"source {name} codec", self.codecs[name].hot_path))
        for route in self.result_routes:
            paths.append(PartHotPath(f"sink {route.name}", route.sink.hot_path))
            paths.append(PartHotPath(f"sink {route.name} codec", route.codec.hot_path))
        # Dead letters hold payloads as they came: the codec is not used.
        paths += [PartHotPath(f"sink {route.name}", route.sink.hot_path) for route in self.letters]
        return paths

    def measured(self) -> list[Measured]:
        """The sources, their codecs and the sinks, each with the function that reads its metrics."""
        measured = [Measured(f"source {name}", config.type, source.metrics) for name, config, source in self.sources]
        measured += [
            Measured(f"source {name}", _innermost(config).type, self.codecs[name].metrics)
            for name, config, _ in self.sources
        ]
        configs = [*self.service.sinks, *self.service.letter_sinks]
        for route, config in zip(self.all_routes, configs, strict=True):
            measured.append(Measured(f"sink {route.name}", config.type, route.sink.metrics))
        shadow, sink = self.shadow_route, self.service.shadow_sink
        if shadow is not None and sink is not None:
            measured.append(Measured(f"sink {shadow.name}", sink.type, shadow.sink.metrics))
        return measured

    def pages(self) -> dict[str, dict[str, Callable[[], Any]]]:
        """The pages of the sources on the control port, by page and source."""
        pages: dict[str, dict[str, Callable[[], Any]]] = {}
        for name, _, source in self.sources:
            for page, document in source.pages().items():
                pages.setdefault(page, {})[name] = document
        return pages

    def leave(self) -> None:
        """The process ends while this is opened: that is no fault of the models. From any thread."""
        if self._openings is not None:
            self._openings.end()

    def close(self, busy: Collection[Executor] = ()) -> None:
        """Close everything that is open, but for the pipelines that are `busy`; idempotent."""
        self._busy = busy
        self.leave()
        self._stack.close()

    def _close_pipelines(self) -> None:
        if self.lineup is not None:
            self.lineup.close(self._busy)

    @property
    def opens_images(self) -> bool:
        """Whether a step or a sink's codec may look at the pixels of images that arrive undecoded."""
        return self.executor.opens_images or any(route.codec.opens_images for route in self.result_routes)

    def wanted(self) -> frozenset[str] | None:
        """Keys to decode on arrival: those that the first steps read. `None`: not known."""
        return self.executor.reads


def build(
    service: Service,
    *,
    start_from: str | None = None,
    sources: Mapping[str, Source] | None = None,
    sinks: Mapping[str, Sink] | None = None,
    dead: Sink | Sequence[Sink] | None = None,
) -> Assembly:
    """The parts of a service, not connected yet.

    `sources`, `sinks` (by name) and `dead` replace the service's own connectors, for tests and notebooks; codecs
    and everything else stay. Results of a shadow are sent only if its sink is among `sinks`. `dead` is the sink of dead
    letters, or all of failed records in the order of `Service.letter_sinks`. `start_from` resets where sources begin
    (earliest, latest or a time). Raises `DefinitionError`, also for code and files in a service that may not use them,
    and `MissingPackageError`.
    """
    check_code(service, connected=sources is None)
    with choosing(service.hot_path):
        built: list[tuple[str, SourceConfig, Source]] = []
        for config in service.sources:
            name = config.label
            if sources is not None:
                built.append((name, config, sources[name]))
                continue
            config.check_packages()
            built.append((name, config, (config if start_from is None else config.starting(start_from)).build()))

        by_name = {name: source for name, _, source in built}
        if sinks is None:
            sinks, letters = _sinks(service)
        elif isinstance(dead, Sequence):
            letters = [*dead]
        else:
            letters = [
                _sink(config, service) if dead is None or config.awaited else dead for config in service.letter_sinks
            ]
        routes = [_results(config, sinks[config.label], service, by_name) for config in service.sinks]
        shadow = _shadow(service, sinks, by_name)
        shown = routes if shadow is None else [*routes, shadow]
        pipeline = service.sequence()
        for route in shown:
            route.sink.service = service.name
            route.sink.pipeline = pipeline if route is not shadow else service.pipeline_of(SHADOW)
            route.sink.others = [other.sink for other in routes if other is not route]
            route.sink.attach([*by_name.values()])
        failed = [
            _letters(config, sink, service, by_name) for config, sink in zip(service.letter_sinks, letters, strict=True)
        ]
        for route in failed:
            route.sink.attach([*by_name.values()])
        return Assembly(
            service,
            built,
            {config.label: codec_of(config.codec) for config in service.sources},
            routes,
            failed,
            shadow,
            state=_store(service, routes[0].sink) if sources is None else None,
            connected=sources is None,
        )


def _store(service: Service, first: Sink) -> StateStore | None:
    """Where the state is saved: in the transactions of the `first` sink, if it has some."""
    if isinstance(service.state, StateTopicSettings):
        store = TopicStore(service.sources[0].build_state(service.state.topic), service.name)
        if isinstance(first, TransactionalSink):
            store.share(first)
        return store
    return FileStore(service.state.path, service.name) if isinstance(service.state, StateSettings) else None


def ports_for(service: Service, source: SourceConfig, ports: Ports) -> Ports:
    """What records of this source have to bring themselves, and what their results have, for a pipeline of `ports`."""
    if service.keep is not None:
        ports = replace(ports, outputs=None)
    if ports.inputs is None or not source.into:
        return ports
    # Metadata of the record becomes the values of the others.
    return replace(ports, inputs=tuple(port for port in ports.inputs if port.name not in source.into.values()))


def _topic(config: SinkConfig) -> str | None:
    return None if config.addressing is None else config.addressing.topic


def _letters(config: SinkConfig, sink: Sink, service: Service, sources: Mapping[str, Source]) -> SinkRoute:
    name = f"{config.label} errors" if config.awaited else "dead_letter"
    return SinkRoute.of(config, sink, codec_of(config.codec, _topic(config)), name, sources=sources)


def _results(config: SinkConfig, sink: Sink, service: Service, sources: Mapping[str, Source]) -> SinkRoute:
    codec = codec_of(config.codec, _topic(config))
    return SinkRoute.of(config, sink, codec, config.label, service.record_names, sources=sources)


def _shadow(service: Service, sinks: Mapping[str, Sink], sources: Mapping[str, Source]) -> SinkRoute | None:
    """The route of a shadow's results; `None`: they go nowhere."""
    config = service.shadow_sink
    if config is None or config.label not in sinks:
        return None
    route = _results(config, sinks[config.label], service, sources)
    route.made_by.variant = SHADOW
    return route


def _innermost(config: SourceConfig) -> CodecConfig:
    """The codec of a source; of one that unpacks another format, the codec inside that reads the content."""
    return list(codec_config(config.codec).layers)[-1]


def _sinks(service: Service) -> tuple[dict[str, Sink], list[Sink]]:
    """The sinks of results, by name, also those of a shadow, and those of failed records: siblings if they send in
    transactions."""
    configs = [*service.sinks, *service.letter_sinks]
    if guarantee(service.delivery).transactional:
        for config in configs:
            config.check_packages()
        first = configs[0].build_transactional(service.sources[0], service.transactions.timeout)
        built: list[Sink] = [first, *(first.sibling(config) for config in configs[1:])]
    else:
        built = [_sink(config, service) for config in configs]
    count = len(service.sinks)
    sinks = {config.label: sink for config, sink in zip(service.sinks, built, strict=False)}
    if service.shadow_sink is not None:
        # Outside of transactions.
        sinks[service.shadow_sink.label] = _sink(service.shadow_sink, service)
    return sinks, built[count:]


def _sink(config: SinkConfig, service: Service) -> Sink:
    config.check_packages()
    return with_outbox(config, config.build(), service.name)
