"""`Service`: the model of a service file.

It holds data and validation; `run`, `stop` and `with` call `streamer.agent.running`.
"""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    PrivateAttr,
    SerializeAsAny,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

import pipelines
from connectors.config import ConnectorConfig, SinkConfig, SourceConfig
from connectors.registry import SINKS, SOURCES
from pipelines.definitions.definition import read_pipeline
from pipelines.definitions.document import Document
from pipelines.definitions.overriding import overridden
from pipelines.described import FrozenSettings
from pipelines.errors import DefinitionError, StreamerError
from pipelines.hotpath import HotPath
from pipelines.late import late
from streamer.agent.summary import Summary
from streamer.batching.registry import settings_class
from streamer.definition.batchofpipeline import with_batch_of
from streamer.definition.connectors.fields import checks, record_names, shadow_checks
from streamer.definition.connectors.reading import configured
from streamer.definition.nocode import NoCode, code_allowed
from streamer.definition.settings import (
    BatcherSettings,
    BatchSettings,
    Control,
    FailureSettings,
    Limits,
    ModelSettings,
    Profile,
    StateSettings,
    StateTopicSettings,
    Tracing,
    TransactionSettings,
)
from streamer.definition.stepsettings import StepSettings, check_steps
from streamer.delivery.guarantee import guarantee
from streamer.models.settings import CURRENT, SHADOW, Variant, check_sticky, check_variants
from streamer.routing.sinkroute import check_topics

Config = TypeVar("Config", bound=ConnectorConfig)

_run: Final[Callable[[Service, str | None], Summary]] = late("streamer.agent.running:run")
_start: Final[Callable[[Service], None]] = late("streamer.agent.running:start")
_stop: Final[Callable[[Service], None]] = late("streamer.agent.running:stop")
_end: Final[Callable[..., None]] = late("streamer.agent.running:end")

_SOURCES_OF_SERVICE = "sources of the service"
"""Key in a validation's context."""


def _checked(config: Config, info: ValidationInfo) -> Config:
    for field, check in checks(config, (info.context or {}).get(_SOURCES_OF_SERVICE)).items():
        try:
            check()
        except StreamerError as error:
            raise ValueError(f"{field}: {error}") from error
    return config


def _source(value: object, info: ValidationInfo) -> object:
    return configured(SOURCES, value, info)


def _sink(value: object, info: ValidationInfo) -> object:
    return configured(SINKS, value, info)


_Source = Annotated[SourceConfig, BeforeValidator(_source), AfterValidator(_checked)]
_Sink = Annotated[SinkConfig, BeforeValidator(_sink), AfterValidator(_checked)]
_SOURCES = TypeAdapter(Annotated[list[_Source], Field(min_length=1)])
_SINKS = TypeAdapter(Annotated[list[_Sink], Field(min_length=1)])
_SINK: TypeAdapter[SinkConfig] = TypeAdapter(_Sink)


def _sources(value: object, info: ValidationInfo) -> list[SourceConfig]:
    sources = _named(_SOURCES.validate_python(_listed(value), context=info.context), "source")
    return [source.in_service(_service_name(info)) for source in sources]


def _sinks(value: object, info: ValidationInfo) -> list[SinkConfig]:
    given = info.data.get("source", ())
    context = {**(info.context or {}), _SOURCES_OF_SERVICE: given or None}
    sinks = _named(_SINKS.validate_python(_listed(value), context=context), "sink")
    return [sink.in_service(_service_name(info), given) for sink in sinks]


def _service_name(info: ValidationInfo) -> str:
    name: str = info.data.get("name", "service")
    return name


def _listed(value: object) -> object:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _named(configs: list[Config], what: str) -> list[Config]:
    """The configurations with unique names: the given name, else the type, or `type-0`, `type-1`, ... among several."""
    types = [config.type for config in configs]
    named = []
    for place, config in enumerate(configs):
        if config.name is None:
            index = types[:place].count(config.type)
            name = config.type if types.count(config.type) == 1 else f"{config.type}-{index}"
            config = config.model_copy(update={"name": name})
        named.append(config)
    names = [config.label for config in named]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f'two {what}s have the name "{twice}"; give each a name of its own')
    return named


def _dead_letter(value: object, info: ValidationInfo) -> SinkConfig | None:
    if value is None:
        return None
    context = {**(info.context or {}), _SOURCES_OF_SERVICE: info.data.get("source") or None}
    config = _SINK.validate_python(value, context=context)
    if config.when is not None or config.keys is not None or config.drop:
        raise ValueError("a dead letter takes whole records as they came: it has no when, keys or drop")
    if "bytes" not in config.carries:
        raise ValueError(f"a dead letter is bytes, and a sink of type {config.type} takes none; choose another")
    config = config.for_dead_letters()
    if check_topics(config) is not None:
        raise ValueError("a dead letter's topic cannot be made from values: the record may have none")
    config = config if config.name is not None else config.model_copy(update={"name": "dead_letter"})
    if any(sink.name == config.name for sink in info.data.get("sink", ())):
        raise ValueError(f'a sink has the name "{config.name}" too; give each a name of its own')
    return config.in_service(_service_name(info), info.data.get("source", ()))


def _of_shadow(name: str, variant: Variant, info: ValidationInfo) -> Variant:
    """The variant with its sink as part of the service."""
    config, sources = variant.sink, info.data.get("source", ())
    if config is None:
        return variant
    if name != SHADOW:
        raise _wrong(
            (name, "sink"), f"only {SHADOW} has a sink of its own, others have those of the service; remove it"
        )
    for field, check in shadow_checks(config, sources or None).items():
        try:
            check()
        except StreamerError as error:
            raise _wrong((name, "sink", field), str(error)) from error
    config = config if config.name is not None else config.model_copy(update={"name": SHADOW})
    others = [*info.data.get("sink", ()), *filter(None, [info.data.get("dead_letter")])]
    if any(other.name == config.name for other in others):
        raise _wrong((name, "sink", "name"), f'a sink has the name "{config.name}" too; give each a name of its own')
    return variant.model_copy(update={"sink": config.in_service(_service_name(info), sources)})


def _wrong(place: tuple[str, ...], text: str) -> ValidationError:
    """The error of the value at this place in a field."""
    detail = PydanticCustomError("value_error", "{text}", {"text": text})
    return ValidationError.from_exception_data("Service", [{"type": detail, "loc": place, "input": None}])


def _pipeline(value: object, info: ValidationInfo) -> pipelines.Pipeline:
    base = Path((info.context or {}).get("base") or Path.cwd())
    if isinstance(value, pipelines.Pipeline):
        return value
    if isinstance(value, (str, Path)):
        return pipelines.load(base / Path(value).expanduser())
    if isinstance(value, list) and not any(isinstance(step, Mapping) for step in value):
        return pipelines.Sequence(value)
    return read_pipeline(Document({"steps": value} if isinstance(value, list) else value), base=base)


def _batch(value: object, info: ValidationInfo) -> BatcherSettings:
    if not isinstance(value, BatcherSettings):
        value = settings_class(value).model_validate(value, context=info.context)
    pipeline = info.data.get("pipeline")
    if pipeline is None or not pipeline.batch:
        return value
    perishable = all(source.perishable for source in info.data.get("source", ()))
    return with_batch_of(pipeline, value, perishable=perishable)


_Batching = Annotated[SerializeAsAny[BatcherSettings], BeforeValidator(_batch), Field(validate_default=True)]


@dataclasses.dataclass(frozen=True, slots=True)
class _Written:
    """The document that a service was read from, which does not count when services are compared."""

    document: Document | None = dataclasses.field(default=None, compare=False)


class Service(FrozenSettings):
    """A service: its sources, its pipeline, its sinks, and its delivery guarantee.

    The same model in Python and in service files (`streamer.load`). Raises `pydantic.ValidationError` for wrong
    fields; loading a file turns it into `DefinitionError` with file and line.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    name: Annotated[str, Field(min_length=1, max_length=200)] = "service"
    """The label of the service in metrics and logs, and its consumer group unless the source names one. In a service file the default is the file's name without its ending, or the folder's name if the file has a general name such as `service.yaml`."""  # noqa: E501
    hot_path: HotPath = "auto"
    """Which code reads, decodes, encodes and sends records: `auto` is the compiled one if it was built, else plain Python; with `native` the service does not start unless it was built; `python` is plain Python."""  # noqa: E501
    source: Annotated[SerializeAsAny[SourceConfig] | list[SerializeAsAny[SourceConfig]], PlainValidator(_sources)]
    """Where records come from, one source or several; the records of all go through the one pipeline."""
    pipeline: Annotated[Any, PlainValidator(_pipeline)]
    """The pipeline: the path of a file (relative to the service file), the definition itself, or in Python a pipeline object."""  # noqa: E501
    set: dict[str, Any] = Field(default_factory=dict)
    """Overrides fields of the pipeline's steps, by name or type of the step: `{ONNX.modelUri: "${MODEL:-model.onnx}"}`. The pipeline's own file is not changed."""  # noqa: E501
    runners: dict[str, str] = Field(default_factory=dict)
    """Which runner (the code that runs a step) is used for a type of step, if there are several: `{ONNX: onnxruntime}`.
    `streamer steps` lists them. By default the first one in that list whose packages are installed."""
    keep: Literal["all"] | list[str] | None = None
    """Keys of input values that are put back into the result of the same record, if the pipeline dropped them."""
    batch: _Batching = BatchSettings()
    """How records are gathered into batches. Fields that it does not set are those of the pipeline's own `batch`, if it has any."""  # noqa: E501
    sink: Annotated[SerializeAsAny[SinkConfig] | list[SerializeAsAny[SinkConfig]], PlainValidator(_sinks)]
    """Where results go, one sink or several; every result goes to each sink whose `when` holds, or that has no `when`."""  # noqa: E501
    dead_letter: Annotated[SerializeAsAny[SinkConfig] | None, PlainValidator(_dead_letter)] = None
    """Where records that failed go, unchanged, with the error in their headers. Without it a failing record stops the service (see `on_error`)."""  # noqa: E501
    on_error: Literal["stop", "drop"] = "stop"
    """Without a `dead_letter`: a failing record stops the service (`stop`), or is lost (`drop`)."""
    delivery: Literal["at_most_once", "at_least_once", "exactly_once"] = "at_least_once"
    """When a record is acknowledged. at_least_once: when its results are confirmed. at_most_once: on arrival. exactly_once: together with its results, in one transaction of Kafka."""  # noqa: E501
    transaction: TransactionSettings | None = None
    """How long transactions last, with `delivery: exactly_once`."""
    state: Literal["memory"] | StateSettings | StateTopicSettings | None = None
    """Where steps that remember (WINDOW, DEDUP, CHANGE, JOIN) keep what they know: in a file, `{path: state.db}`, or, where partitions move between processes, a topic of Kafka, `{topic: NAME}`, with which they go on after a restart; or in memory, where they begin anew. Needed if there are such steps, unless all sources are live."""  # noqa: E501
    limits: Annotated[Limits, Field(validate_default=True)] = Limits()
    """How many records may be in flight, and how long the service waits for others."""
    errors: FailureSettings = FailureSettings()
    """When the service stops because most records fail."""
    steps: dict[str, StepSettings] = Field(default_factory=dict)
    """By name or type of a step: which of its records are run again, and how long it may take for each, `{enrich: {retry: {on: [ConnectionError]}, timeout: 2s}}`."""  # noqa: E501
    variants: dict[str, Variant] = Field(default_factory=dict)
    """Versions of the pipeline that run side by side, each with a share of the records: `{next: {version: 4, weight: 10}}`. The one called `current` is always there: the newest version that is no other variant's."""  # noqa: E501
    models: ModelSettings = ModelSettings()
    """What is done when files of the pipeline's models change while the service runs."""
    control: Control | None = None
    """A server of metrics and health over HTTP; by default none."""
    profile: Profile | None = None
    """A file into which the times of stages and steps are written, for a trace viewer; by default none."""
    tracing: Tracing | None = None
    """Traces of batches and records for a collector of OpenTelemetry (extra `otel`), `{sample: 1%}`; off by default."""
    debug: bool | Literal["records"] = False
    """Whether results carry a trace of each step in their metadata: all results (`true`), or those of records with the header `streamer-debug` (`records`)."""  # noqa: E501

    _no_code: NoCode | None = PrivateAttr(default=None)
    _written: _Written = PrivateAttr(default_factory=lambda: _Written())

    @property
    def sources(self) -> list[SourceConfig]:
        """The sources, each with a name."""
        return self.source if isinstance(self.source, list) else [self.source]

    @property
    def sinks(self) -> list[SinkConfig]:
        """The sinks, each with a name."""
        return self.sink if isinstance(self.sink, list) else [self.sink]

    @property
    def letter_sinks(self) -> list[SinkConfig]:
        """Where failed records go: each to the first of these that takes records of its source.

        Back to clients that wait for an answer; else to `dead_letter`, or without it to the clients of a sink that
        answers. A record that none takes stops the service, or is lost (`on_error`).
        """
        answering = [(sink.awaited, letters) for sink in self.sinks if (letters := sink.for_failures()) is not None]
        awaited = [letters for is_awaited, letters in answering if is_awaited]
        if self.dead_letter is not None:
            return [*awaited, self.dead_letter]
        return awaited if self.on_error == "drop" else [*awaited, *(other for wait, other in answering if not wait)]

    @property
    def shadow_sink(self) -> SinkConfig | None:
        """Where the results of the variant `shadow` go; `None`: nowhere, or there is no shadow."""
        return self.variants[SHADOW].sink if SHADOW in self.variants else None

    @property
    def transactions(self) -> TransactionSettings:
        """How long transactions last, with `delivery: exactly_once`."""
        given = self.transaction or TransactionSettings()
        if isinstance(self.state, StateTopicSettings):
            return given.with_state(self.state.interval)
        return given

    @property
    def groups(self) -> dict[str, str]:
        """The consumer groups of the sources that have one, by the source's name."""
        groups = {config.label: config.group_name for config in self.sources}
        return {label: group for label, group in groups.items() if group}

    @property
    def record_names(self) -> list[str]:
        """Names of metadata that the sources declare besides those of all records; topics may use them."""
        return record_names(self.sources)

    @property
    def is_asked(self) -> bool:
        """Whether all records are requests, whose clients wait for their answers."""
        answered = {label for sink in self.sinks if sink.awaited for label in sink.takes_from or ()}
        return all(source.label in answered for source in self.sources)

    def sequence(self) -> pipelines.Pipeline:
        """The pipeline with the fields that `set` gives its steps, not open."""
        return overridden(self.pipeline, self.set)

    def pipeline_of(self, variant: str) -> pipelines.Pipeline:
        """The pipeline with the fields that `set` of the service and of this variant give its steps, not open."""
        fields = self.variants[variant].set if variant in self.variants else {}
        return overridden(self.pipeline, {**self.set, **fields})

    @property
    def variant_names(self) -> list[str]:
        """The names of its variants, `current` first."""
        return [CURRENT, *(name for name in self.variants if name != CURRENT)]

    def with_runners(self, runners: Mapping[str, str]) -> Service:
        """A copy with these runners for these types of steps. Raises `DefinitionError` for unknown runners or types."""
        pipelines.default_registry().check_runners(runners)
        return self.model_copy(update={"runners": {**self.runners, **runners}})

    @property
    def allows_code(self) -> bool:
        """Whether it may run code that its files hold or name.

        Not if made by `without_code`, nor if the environment variable STREAMER_NO_CODE forbids it.
        """
        return self.no_code is None

    @property
    def no_code(self) -> NoCode | None:
        """The files and variables that it may use although it may not run code; `None`: it may run code."""
        return self._no_code or (None if code_allowed() else NoCode.of())

    @property
    def written(self) -> Document | None:
        """The part of a service file that defines it, for messages with file and line; `None`: made in Python."""
        return self._written.document

    def written_in(self, document: Document) -> Service:
        """The same service, defined by this part of a file."""
        copy = self.model_copy()
        copy._written = _Written(document)
        return copy

    def without_code(self, no_code: NoCode | None = None) -> Service:
        """The same service, which refuses to start with code of its files.

        It raises `DefinitionError` at the start if it would run code that its files hold or name, or use files that are
        not listed in `no_code` (see `streamer.definition.nocode`).

        Values of environment variables and `${file:...}` are already in it by then: load untrusted definitions with
        `streamer.load(path, no_code=...)`, which refuses these, too.
        """
        copy = self.model_copy()
        copy._no_code = no_code or NoCode.of()
        return copy

    def run(self, *, start_from: str | None = None) -> Summary:
        """Run until SIGTERM or SIGINT (in the main thread), `stop`, the end of all sources, or a failure.

        `start_from` resets the sources first: earliest, latest or a time. The summary tells of a failure; errors of
        opening (a missing model, bad credentials) are raised.
        """
        return _run(self, start_from)

    def stop(self) -> None:
        """Stop the intake, finish the records in flight, and end; returns at once. From any thread."""
        _stop(self)

    def __enter__(self) -> Service:
        """Run in the background."""
        _start(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop and wait for the end. Raises `StreamerError` if the service failed and the block raised no error."""
        _end(self, failed=error is not None)

    def _repr_html_(self) -> str:
        lost = "lost" if self.on_error == "drop" else "stop the service"
        rows = {
            "from": ", ".join(f"{source.label} ({source.type})" for source in self.sources),
            "pipeline": repr(self.sequence()),
            "to": ", ".join(f"{sink.label} ({sink.type})" for sink in self.sinks),
            "delivery": self.delivery,
            "failed records": lost
            if self.dead_letter is None
            else f"{self.dead_letter.label} ({self.dead_letter.type})",
        }
        cells = "".join(f"<tr><td>{key}</td><td>{html.escape(value)}</td></tr>" for key, value in rows.items())
        return f"<table><tr><th>service</th><th>{html.escape(self.name)}</th></tr>{cells}</table>"

    @field_validator("set")
    @classmethod
    def _fits_the_pipeline(cls, given: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        if "pipeline" in info.data:
            # Raises for an unknown step or field.
            overridden(info.data["pipeline"], given)
        return given

    @field_validator("runners")
    @classmethod
    def _known_runners(cls, runners: dict[str, str]) -> dict[str, str]:
        try:
            pipelines.default_registry().check_runners(runners)
        except DefinitionError as error:
            raise ValueError(str(error).removeprefix("runners: ")) from None
        return runners

    @field_validator("batch")
    @classmethod
    def _no_target_for_rounds(cls, batch: BatcherSettings, info: ValidationInfo) -> BatcherSettings:
        sources = info.data.get("source")
        if batch.target is None or "type" in batch.model_fields_set or not sources:
            return batch
        if all(source.perishable for source in sources):
            raise ValueError(
                "target_latency is for batches of type soft, and a service of live sources alone has rounds, which "
                "wait for max_wait; remove it, or write type: soft"
            )
        return batch

    @field_validator("on_error")
    @classmethod
    def _one_place_for_failures(cls, on_error: str, info: ValidationInfo) -> str:
        if on_error == "drop" and info.data.get("dead_letter") is not None:
            raise ValueError("drop contradicts dead_letter, which takes failed records; remove one of them")
        return on_error

    @field_validator("delivery")
    @classmethod
    def _possible(cls, delivery: str, info: ValidationInfo) -> str:
        sources, sinks = info.data.get("source"), info.data.get("sink")
        if not (guarantee(delivery).transactional and sources and sinks):
            return delivery
        if len(sources) > 1:
            raise ValueError(
                f"{delivery} needs one source, whose positions the transactions commit, and there are {len(sources)}; "
                "make each a service of its own, or use at_least_once"
            )
        source = sources[0]
        if source.outside_transactions is not None:
            raise ValueError(f'source "{source.label}": {source.outside_transactions}')
        for sink in [*sinks, *filter(None, [info.data.get("dead_letter")])]:
            if sink.outbox is not None:
                raise ValueError(
                    f'the outbox of the sink "{sink.label}" may send a message twice, and {delivery} may not; remove '
                    "the outbox, or use at_least_once"
                )
            if (why := sink.outside_transactions(source, sinks[0])) is not None:
                raise ValueError(f'sink "{sink.label}": {why}')
        return delivery

    @field_validator("transaction")
    @classmethod
    def _of_transactions(cls, given: TransactionSettings | None, info: ValidationInfo) -> TransactionSettings | None:
        delivery = info.data.get("delivery")
        if given is not None and delivery is not None and not guarantee(delivery).transactional:
            raise ValueError(f"is for delivery: exactly_once; with {delivery} there are no transactions")
        return given

    @field_validator("state", mode="before")
    @classmethod
    def _place_of_state(cls, given: Any, info: ValidationInfo) -> Any:
        if isinstance(given, str) and given != "memory":
            raise ValueError(f'"{given}" is no place for state; write {{path: FILE}}, {{topic: NAME}} or memory')
        if not isinstance(given, Mapping):
            return given
        if "topic" in given and "path" in given:
            raise ValueError("a file and a topic are two places; write {path: FILE} or {topic: NAME}")
        settings = StateTopicSettings if "topic" in given else StateSettings
        return settings.model_validate({**given}, context=info.context)

    @field_validator("state")
    @classmethod
    def _saved_with_positions(cls, state: Any, info: ValidationInfo) -> Any:
        delivery = info.data.get("delivery")
        if state in (None, "memory"):
            return state
        if delivery is not None and not guarantee(delivery).saves_state:
            raise ValueError(
                f"it is saved together with the positions of the records, and {delivery} commits these in another way; "
                "use at_least_once, or state: memory"
            )
        if isinstance(state, StateSettings) and delivery is not None and guarantee(delivery).transactional:
            raise ValueError(
                f"a file cannot be part of the brokers' transactions, in which {delivery} commits results and "
                "positions; write {topic: NAME}, or use at_least_once"
            )
        sources = info.data.get("source")
        if isinstance(state, StateSettings):
            for source in sources or ():
                if (why := source.outside_state_files) is not None:
                    raise ValueError(f'source "{source.label}": {why}')
        if isinstance(state, StateTopicSettings) and sources:
            if len(sources) > 1:
                raise ValueError(
                    f"a topic keeps the state of one source, and there are {len(sources)}; make each a service of its "
                    "own, or write {path: FILE}, for one process"
                )
            if (why := sources[0].outside_state_topics) is not None:
                raise ValueError(f'source "{sources[0].label}": {why}')
        return state

    @field_validator("steps")
    @classmethod
    def _possible_steps(cls, steps: dict[str, StepSettings], info: ValidationInfo) -> dict[str, StepSettings]:
        pipeline, limits = info.data.get("pipeline"), info.data.get("limits")
        if steps and pipeline is not None and limits is not None:
            check_steps(steps, overridden(pipeline, info.data.get("set", {})), limits.stuck)
        return steps

    @field_validator("variants")
    @classmethod
    def _possible_variants(cls, variants: dict[str, Variant], info: ValidationInfo) -> dict[str, Variant]:
        check_variants(variants)
        batch, pipeline = info.data.get("batch"), info.data.get("pipeline")
        if batch is not None and batch.type == "hard" and any(name not in (CURRENT, SHADOW) for name in variants):
            raise ValueError("a batch of type hard is never divided, and each variant gets a part; use soft")
        for name, variant in variants.items():
            if pipeline is None or not variant.set:
                continue
            try:
                overridden(pipeline, {**info.data.get("set", {}), **variant.set})
            except DefinitionError as error:
                raise ValueError(f"{name}.set: {error}") from error
        return {name: _of_shadow(name, variant, info) for name, variant in variants.items()}

    @field_validator("models")
    @classmethod
    def _possible_models(cls, models: ModelSettings, info: ValidationInfo) -> ModelSettings:
        variants = info.data.get("variants")
        if variants is not None:
            check_sticky(models.sticky, variants)
        return models

    @field_validator("limits")
    @classmethod
    def _room_for_a_batch(cls, limits: Limits, info: ValidationInfo) -> Limits:
        batch = info.data.get("batch")
        if batch is not None and limits.in_flight < batch.max_bytes:
            raise ValueError(
                f"in_flight ({limits.in_flight} bytes) is less than one batch may hold (batch.max_bytes, "
                f"{batch.max_bytes} bytes); raise the one or lower the other"
            )
        return limits
