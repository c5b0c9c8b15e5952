"""Checks of a service that need no connection."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from connectors.codecs.config import PayloadFields
from connectors.codecs.registry import codec_config, codec_of
from connectors.config import SinkConfig, SourceConfig
from connectors.outbox.wrapping import contents
from pipelines.definitions.drawing import settings_text
from pipelines.definitions.walk import Part, batches_inside, walk
from pipelines.errors import StepError, StreamerError, nearest
from pipelines.executors.errorclasses import error_class
from pipelines.executors.executor import Executor
from pipelines.executors.openpolicy import PolicyError, by_step, check_policy
from pipelines.executors.policy import NO_POLICY, StepPolicy
from pipelines.hotpath import HotPathError
from pipelines.plugins.modelfiles import is_here, is_remote
from pipelines.plugins.registry import default_registry
from pipelines.runners.forms import Forms, ValueForm
from pipelines.runners.models.fixedbatch import stated_count
from pipelines.runners.models.model import Model
from pipelines.runners.models.model import described as shape_of
from pipelines.runners.models.modelrunner import ModelRunner, output_forms
from pipelines.runners.runner import OpenContext, StatefulRunner
from pipelines.steps import (
    Detect,
    DrawBoundingBox,
    GraphStep,
    Keras,
    Lookup,
    Onnx,
    PipelineStep,
    Step,
    TensorFlow,
    TensorRt,
    Trigger,
    Tvm,
    Zones,
)
from pipelines.values import ValueType
from streamer.agent.assembly import build
from streamer.agent.runs.parallel import check_parallel
from streamer.batching.registry import BATCHERS
from streamer.cli.arrayboxes import left_in_arrays
from streamer.cli.commands.run import described
from streamer.cli.resultkeys import (
    StepKeys,
    at_steps,
    incomparable,
    misfits,
    of_input,
    of_results,
    of_source,
    unfilled,
    unfitting,
    with_inner,
    written,
)
from streamer.cli.serving.requests import Requests, requests_of
from streamer.definition.circles import circle
from streamer.definition.connectors.listed import connectors_of, result_sinks_of
from streamer.definition.hotpaths import in_words
from streamer.definition.openedpipeline import opened_pipeline, policy_error
from streamer.definition.refusals import refused
from streamer.definition.service import Service
from streamer.definition.settings import StateSettings, StateTopicSettings, Tracing
from streamer.definition.stepsettings import policies
from streamer.delivery.guarantee import guarantee
from streamer.models.files import State
from streamer.models.opening import Openings
from streamer.routing.into import Into
from streamer.routing.sinkroute import SinkRoute
from streamer.state.agreement import check_answers, check_state, check_topics, check_transactions
from streamer.tracing.opening import check_packages

_WITH_MODELS = (Detect, Onnx, TensorFlow, Keras, TensorRt, Tvm)
"""Steps whose models may be at URLs."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    part: str
    """The part of the service: `source kafka`, `step 0:ONNX`, ..."""
    ok: bool
    text: str
    """What the check found out, or the error."""


def requests_finding(service: Service, *, connect: bool) -> tuple[list[Finding], list[Requests]]:
    """A finding for each source that takes requests, and what these look like; `connect` as in `requests_of`."""
    try:
        requests = requests_of(service, connect=connect)
    except StreamerError as error:
        return [Finding("requests", False, str(error))], []
    return [Finding(f"requests {each.source}", True, each.in_words) for each in requests], requests


def finding(part: str, look: Callable[[], str]) -> Finding:
    """The result of the check `look`: the text that it returns, or the error that it raises."""
    try:
        return Finding(part, True, look())
    except StreamerError as error:
        return Finding(part, False, str(error))
    except Exception as error:  # noqa: BLE001 - of a user's function or a plug-in; the other parts are looked at too
        return Finding(part, False, f"{type(error).__name__}: {error}")


@dataclass(frozen=True, slots=True)
class Examined:
    """The findings about a service, and the keys that its steps need and give."""

    findings: list[Finding]
    steps: Mapping[str, StepKeys]
    """The keys that steps need and give, by the step's name, as far as they are known."""


def examined(service: Service) -> Examined:
    """Check every part of the service: connectors and their packages, steps with runners and models, settings.

    If the service may not run code, parts that would run code are reported as wrong, and not tried.
    """
    steps: dict[str, StepKeys] = {}
    saving: list[str] = []
    # First, so that files outside of the service's folder are refused before they are read.
    refusals = refused(service)
    parts = list(walk(service.sequence()))

    def tried(part: str, look: Callable[[], str]) -> Finding:
        # A step is refused for the steps inside it, too.
        whys = (f"{refusal.where}{refusal.why}" for refusal in refusals if f"{refusal.part}/".startswith(f"{part}/"))
        return next((Finding(part, False, why) for why in whys), None) or finding(part, look)

    pipeline_policies = by_step(service.sequence(), policies(service.steps))
    versions, left_out = ({}, []) if refusals else _versions(service)
    context = OpenContext(
        allow_code=service.allows_code, runners=service.runners, policies=pipeline_policies, versions=versions
    )
    findings = [tried(f"source {config.label}", partial(_source, config, service)) for config in service.sources]
    findings += [
        tried(
            f"step {part.name}",
            partial(_part, part, parts, replace(context, base=part.base, step=part.name), service, steps, saving),
        )
        for part in parts
        # Other parts are checked with the step that they are in.
        if isinstance(part.what, (Step, GraphStep, Trigger))
    ]
    known = with_inner(parts, steps)
    sinks = result_sinks_of(service)
    findings += [tried(f"sink {config.label}", partial(_sink, config, service)) for config in sinks]
    dead = "failures" if service.dead_letter is None else f"sink {service.dead_letter.label}"
    findings.append(replace(tried(dead, lambda: _failures(service)), part="failures"))
    findings += [
        Finding(refusal.part, False, f"{refusal.where}{refusal.why}")
        for refusal in refusals
        if refusal.part in ("pipeline", "profile") or refusal.part.startswith("steps ")
    ]
    findings += _together(service)
    if not refusals:
        # A service with refused parts may name schema files that must not be read.
        findings += keys_at_odds(service, known)
    findings += left_out
    if len(service.variant_names) > 1 and not refusals:
        findings.append(finding("variants", lambda: _variants(service)))
    findings.append(finding("hot path", lambda: _hot_paths(service)))
    findings.append(_batch(service))
    findings.append(Finding("delivery", True, _delivery(service)))
    if service.state is not None and all(finding.ok for finding in findings):
        findings.append(Finding("state", True, _state(service, saving)))
    if service.control is not None:
        guarded = "" if service.control.token is None else ", metrics only with the token"
        text = f"metrics and health on http://{service.control.listen}{guarded}"
        findings.append(Finding("control", True, "; ".join(filter(None, (text, service.control.note)))))
    if service.tracing is not None:
        findings.append(finding("tracing", partial(_tracing, service.tracing)))
    return Examined(findings, known)


def keys_at_odds(service: Service, steps: Mapping[str, StepKeys], *, ask: bool = False) -> list[Finding]:
    """The errors of sources and steps that need values which no record has, and of sinks whose settings or schema do
    not fit the keys of results, as far as schemas are known; with `ask` also those in registries.

    A schema that cannot be read is reported by the check of its codec, not here.
    """
    given = of_input(service, ask=ask)
    at = at_steps(service.sequence(), given, steps)
    findings = [
        Finding(f"source {source.label}", False, text)
        for source in service.sources
        if source.where is not None
        for text in unfitting(source, of_source(source, ask=ask))
    ]
    for name, there in at.items():
        text = steps[name].error(there) if name in steps else None
        if text is not None:
            findings.append(Finding(f"step {name}", False, text))
    results = of_results(service, given, at[""])
    for config in result_sinks_of(service):
        fields = _fields(config, ask)
        errors = [*unfilled(config, results), *incomparable(config, results)]
        errors += misfits(fields, written(config, results)) if fields is not None else ()
        findings += [Finding(f"sink {config.label}", False, text) for text in errors]
    return findings


def _fields(config: SinkConfig, ask: bool) -> PayloadFields | None:
    topic = None if config.addressing is None else config.addressing.topic
    try:
        return codec_config(config.codec).with_sink_topic(topic).written_fields(ask=ask)
    except Exception:  # noqa: BLE001 - of a schema that is wrong, or of a server that does not answer
        return None


def _variants(service: Service) -> str:
    """Opens each variant's version, as the service does when it starts."""

    def opened(variant: str, files: State, opening: int) -> list[Executor]:
        return [opened_pipeline(service, variant=variant, versions=files.versions, opening=opening)]

    openings = Openings(service, opened)
    lineup = openings.first()
    lineup.close()
    weights = lineup.sharing.choice.weights
    sent = "" if service.shadow_sink is None else f" and sent to {described(service.shadow_sink)}"
    return ", ".join(
        f"{name} (version {version.label}) "
        + (f"weighs {weights[name]:g}" if name in weights else f"gets a copy, and its results are compared{sent}")
        + (" at first, as a canary" if name in service.variants and service.variants[name].canary else "")
        for name, version in lineup.variants.items()
    ) + "".join(f"; note: {text}" for text in _left_out(openings))


def _versions(service: Service) -> tuple[Mapping[Path, int], list[Finding]]:
    """The versions of models that the service begins with, and a finding about one that it leaves out."""

    def nothing(variant: str, files: State, opening: int) -> list[Executor]:
        return []

    try:
        openings = Openings(service, nothing)
        versions = openings.begins_with().versions
    except (StreamerError, OSError):
        # Opening the steps says what is wrong.
        return {}, []
    return versions, [Finding("models", True, f"note: {text}") for text in _left_out(openings)]


def _left_out(openings: Openings) -> list[str]:
    return [f"version {version.label} is left out: {version.reason}" for version in openings.refused.values()]


def _tracing(tracing: Tracing) -> str:
    check_packages()
    return f"spans to {tracing.endpoint}, of {100 * tracing.sample:g}% of the records that come without a trace"


def _source(config: SourceConfig, service: Service) -> str:
    config.check_packages()
    codec_of(config.codec)
    Into.of(config)
    config.build()
    config.check_client()
    group = service.groups.get(config.label)
    return f"{described(config)}, {_codec(config.codec)}" + (f", group {group}" if group else "") + _notes(config)


def _notes(config: SourceConfig | SinkConfig) -> str:
    return _noted(config.notes)


def _noted(notes: Iterable[str]) -> str:
    return "".join(f"; note: {note}" for note in notes)


def _sink(config: SinkConfig, service: Service) -> str:
    config.check_packages()
    topic = None if config.addressing is None else config.addressing.topic
    codec = codec_of(config.codec, topic=topic)
    SinkRoute.of(config, config.build(), codec, config.label, service.record_names)
    config.check_client()
    outbox = "" if config.outbox is None else f", outbox {config.outbox.path}: {contents(config.outbox.path)}"
    # Dead letters hold records as they came: the codec is not used.
    back = circle(config, service)
    note = "" if back is None else f"; note: {back}"
    encoded = "" if config is service.dead_letter else f", {_codec(config.codec)}"
    return f"{described(config)}{encoded}{outbox}{_notes(config)}{note}"


def _part(
    part: Part,
    parts: Iterable[Part],
    context: OpenContext,
    service: Service,
    keys: dict[str, StepKeys],
    saving: list[str],
) -> str:
    """The text about a part. Adds to `keys` those that it needs and gives, and to `saving` a step that saves state."""
    if isinstance(part.what, GraphStep):
        # Opening it imports its functions.
        part.what.open(part.name, part.inputs, context)
        return settings_text(part.what) or part.what.type_name
    if not isinstance(part.what, Step):
        return part.what.type_name
    policy = context.policies.get(part.name, NO_POLICY)
    try:
        text, does = _step(part.what, context, service, policy, saving)
    except PolicyError as error:
        raise policy_error(service, part, error) from error
    if does is not None:
        keys[part.name] = does
    text += f", {policy.in_words}" if policy.in_words else ""
    return (
        text
        + _strange_cameras(part.what, service)
        + _strange_keys(part.what, service)
        + left_in_arrays(part.what, parts)
    )


def _strange_keys(step: Step, service: Service) -> str:
    """A note on a step whose key is not known to be that of the records: the partitions of a topic have states of
    their own; empty if it is, or if there are none."""
    by = getattr(step, step.keyed_by) if step.keyed_by else None
    if not by or all(source.into.get("key") in by for source in service.sources if source.by_key):
        return ""
    key = " and ".join(by)
    return (
        f"; note: each partition has states of its own, so all records of one {key} have to be in one partition, as "
        f"they are if it is their key; into: {{key: {by[0]}}} of the source makes the key that value"
    )


def _strange_cameras(step: Step, service: Service) -> str:
    """A note on zones and lines of cameras that no source has, which never have events; empty if there are none."""
    if not isinstance(step, (Zones, DrawBoundingBox)) or any(source.type != "camera" for source in service.sources):
        return ""
    known = [name for source in service.sources for name in source.topic_names]
    places = {**step.zones, **step.lines}
    strange = [(place, name) for place, what in places.items() for name in what.cameras or () if name not in known]
    return "".join(
        f'; note: "{place}" is of the camera "{name}", which no source has{nearest(name, known)}'
        for place, name in strange
    )


def _step(
    step: Step, context: OpenContext, service: Service, policy: StepPolicy, saving: list[str]
) -> tuple[str, StepKeys | None]:
    """The text about a step, and the keys that it needs and gives, if they are known."""
    factory = default_registry().runner_for(step, context.runners.get(step.type_name))
    if context.allow_code and policy.retry is not None:
        for error in policy.retry.on:
            error_class(error, allowed=True)
    if isinstance(step, (PipelineStep, Onnx, Detect)):
        check_policy(policy, stateful=False, ends_calls=False)
    if isinstance(step, PipelineStep):
        # The steps inside have their own findings.
        return factory.name, None
    if isinstance(step, _WITH_MODELS) and step.model_uri and is_remote(step.model_uri) and not is_here(step.model_uri):
        return f"{factory.name}, its model is not in the cache yet: it is fetched when the service starts", None
    if isinstance(step, Onnx):
        text, does = _onnx(step, context, service)
        return f"{factory.name}, {text}", does
    if isinstance(step, Detect):
        text, does = _detect(step, context, service)
        return f"{factory.name}, {text}", does
    if isinstance(step, Lookup) and step.followed is not None:
        table = step.followed.beside(service.sources)
        table.check()
        needs = StepKeys(frozenset(step.by), None, True, partial(_without, frozenset(step.take)), lambda _, __: None)
        return f"{factory.name}, {table.place}, which is read when the service starts", needs
    try:
        runner = factory.create(step, context)
    except StepError as error:
        raise error.__cause__ or error from None
    runner.close()
    check_policy(policy, stateful=isinstance(runner, StatefulRunner), ends_calls=runner.ends_calls)
    if isinstance(runner, StatefulRunner):
        check_answers(service)
        check_transactions(service, *(([context.step], ()) if runner.saves else ((), [context.step])))
    if isinstance(runner, StatefulRunner) and runner.saves:
        check_state(service, {context.step: step})
        check_topics(service, {context.step: step})
        saving.append(context.step)
    if runner.sequential:
        check_parallel(service.limits.parallel, [context.step])
    does = StepKeys.of(runner)
    if not isinstance(runner, ModelRunner):
        opened = f", {runner.in_words}" if runner.in_words else ""
        return f"{factory.name}{opened}{_noted(runner.notes)}", does
    return f"{factory.name}, {shape_of(runner.model)}{_noted(_filled_calls(runner.model, service))}", does


def _without(keys: frozenset[str], given: Forms) -> Forms:
    return {key: form for key, form in given.items() if key not in keys}


def _onnx(step: Onnx, context: OpenContext, service: Service) -> tuple[str, StepKeys]:
    from pipelines.runners.models.onnx import few_values, misfit, needed_keys, output_keys
    from pipelines.runners.models.onnxmodel import OnnxModel

    # The model is opened without a runner, which would run it.
    model = OnnxModel(step, context)
    model.close()
    gives = output_keys(step, model)
    does = StepKeys(
        needed_keys(step, model),
        frozenset(gives),
        False,
        lambda _: output_forms(model, gives),
        partial(misfit, step, model),
    )
    absent = ", ".join(model.passed_over)
    notes = [f"{absent} is not there: {model.providers[0]} runs it"] if absent else []
    further = [f"{name} {port}" for name, port in model.further.items()]
    # Old exporters list every weight as an input.
    if further:
        named = ", ".join(further[:5]) + (f" and {len(further) - 5} more" if len(further) > 5 else "")
        notes.append(f"inputs with values of their own, fed by records that have a value of their name: {named}")
    notes += [*few_values(step, model), *_filled_calls(model, service)]
    return shape_of(model) + _noted(notes), does


def _detect(step: Detect, context: OpenContext, service: Service) -> tuple[str, StepKeys]:
    from pipelines.runners.boxes.detect import needed, written
    from pipelines.runners.boxes.detectormodel import DetectorModel

    # Without a runner, which would run the model.
    detector = DetectorModel(step, context)
    detector.close()
    gives = written(step)

    def forms(given: Forms) -> Forms:
        return {**given, **dict.fromkeys(gives, ValueForm(ValueType.LIST))}

    does = StepKeys(needed(step), gives, True, forms, lambda _, __: None)
    return detector.in_words() + _noted(_filled_calls(detector.model, service)), does


def _filled_calls(model: Model, service: Service) -> list[str]:
    """A sentence about a model whose calls have a fixed number of samples, if batches do not divide into them."""
    count, batch = stated_count(model), service.batch
    if count is None or (batch.type == "hard" and batch.max_records % count == 0):
        return []
    text = f"each call has {count} samples, and the last one of a batch is filled up"
    if batch.type == "hard" or ("max_records" in batch.model_fields_set and batch.max_records % count):
        better = max(count, round(batch.max_records / count) * count)
        return [f"{text}: batch.max_records {batch.max_records} is not a multiple of that, {better} is"]
    if batch.type == "round":
        return [text]
    return [f"{text}; with batch: {{type: hard, max_records: {count}}} no call is, but records wait until it is full"]


def _hot_paths(service: Service) -> str:
    try:
        return in_words(build(service).hot_paths())
    except HotPathError:
        raise
    except StreamerError:
        return "not known, as other parts are wrong"


def _failures(service: Service) -> str:
    texts: list[str] = []
    left = [source.label for source in service.sources]
    for sink in service.letter_sinks:
        where = f"dead letters to {_sink(sink, service)}" if sink is service.dead_letter else "told to their clients"
        sources = [label for label in left if sink.takes_from is None or label in sink.takes_from]
        left = [label for label in left if label not in sources]
        of = f" (of {' and '.join(sources)})" if len(service.letter_sinks) > 1 else ""
        texts.append(f"{where}{of}")
    if left and texts:
        ends = "is lost (on_error: drop)" if service.on_error == "drop" else "stops the service"
        each = "a failing record" if service.on_error == "drop" else "the first failing record"
        texts.append(f"{each} of {' or '.join(left)} {ends}")
    if texts:
        return "; ".join(texts)
    if service.on_error == "drop":
        return "a record that fails is lost (on_error: drop)"
    return "the first record that fails stops the service (no dead_letter)"


def _together(service: Service) -> list[Finding]:
    """Conflicts between connectors of the service."""
    connectors = connectors_of(service)
    return [
        Finding("failures" if each.role == "dead_letter" else each.part, False, text)
        for at, each in enumerate(connectors)
        for text in each.config.conflicts([other.config for other in connectors[at + 1 :]])
    ]


def _batch(service: Service) -> Finding:
    gathers = _batching(service)
    return Finding(gathers.part, gathers.ok, gathers.text + _of_pipeline(service))


def _of_pipeline(service: Service) -> str:
    """What the pipeline says about batches, and what of it the service replaces."""
    meant = service.pipeline.batch
    written = {} if service.written is None else service.written.data.get("batch") or {}
    used = [f"{name} {value}" for name, value in meant.items() if _counts(service, name, written)]
    lost = [f"{name} {value}" for name, value in meant.items() if not _counts(service, name, written)]
    text = f"; the pipeline says {', '.join(used)}" if used else ""
    if lost:
        text += f"; beside the service's own these of the pipeline do not count: {', '.join(lost)}"
    if inside := batches_inside(service.sequence()):
        text += f"; note: the batch of the pipeline inside {', '.join(inside)} does not count"
    return text


def _counts(service: Service, name: str, written: Mapping[str, object]) -> bool:
    return name not in written and name in service.batch.model_fields_set


def _batching(service: Service) -> Finding:
    perishable = all(source.perishable for source in service.sources)
    batch = service.batch.for_sources(perishable=perishable, in_flight=service.limits.in_flight, asked=service.is_asked)
    most = batch.max_records
    ahead = [(config.label, config.most_ahead) for config in service.sources if config.most_ahead is not None]
    narrow = [(label, window) for label, window in ahead if window < most]
    if batch.type == "hard":
        if narrow:
            label, window = narrow[0]
            text = (
                f"exactly {most} records are never there: the window of source {label} is {window}, and it gives no "
                f"more before some are acknowledged; raise it to {3 * most}, or lower batch.max_records"
            )
            return Finding("batch", False, text)
        return Finding("batch", True, f"exactly {most} records")
    if batch.type == "round":
        size = "the best number is measured" if batch.learns_size else f"{most} records at most"
        return Finding("batch", True, f"at most one record of each camera or partition, {size}")
    if batch.target is not None:
        waiting = f"waiting as long as results still come within {batch.target * 1000:g} ms"
    elif batch.type == "soft":
        waiting = f"waiting {batch.wait * 1000:g} ms at most"
    else:
        registered = BATCHERS.find(batch.type)
        waiting = f"gathered by {batch.type}" + ("" if registered is None else f" of {registered.distribution}")
    text = f"up to {most} records or {batch.max_bytes:,} bytes, {waiting}"
    for label, window in ahead:
        if window < most:
            text += f"; note: those of source {label} have at most {window}, its window"
        elif window < 3 * most:
            text += f"; note: the window of source {label} ({window}) is less than the three batches that keep it busy"
    return Finding("batch", True, text)


def _delivery(service: Service) -> str:
    every = f"committed every {service.transactions.interval * 1000:g} ms, " if _is_transactional(service) else ""
    return f"{service.delivery}, {every}{service.limits.in_flight:,} bytes in flight at most"


def _state(service: Service, saving: Sequence[str]) -> str:
    """What is kept where, of the steps of these names."""
    settings = service.state
    if isinstance(settings, StateSettings | StateTopicSettings):
        if not saving:
            return "note: no step of the pipeline has state that is saved, so nothing is; remove it"
        place = settings.path if isinstance(settings, StateSettings) else f"topic {settings.topic}"
        often = service.transactions.interval if _is_transactional(service) else settings.interval
        return f"{place}, saved every {often * 1000:g} ms: {', '.join(saving)}"
    return "in memory: it begins anew with each start"


def _is_transactional(service: Service) -> bool:
    return guarantee(service.delivery).transactional


def _codec(setting: str | dict[str, object]) -> str:
    return f"codec {setting if isinstance(setting, str) else setting.get('type')}"
