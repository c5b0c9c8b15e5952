"""The keys that records have at each step and that results have, and the forms of their values, as far as steps and
schemas tell without a record."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Final

import numpy as np

from connectors.codecs.config import CodecConfig, PayloadFields
from connectors.codecs.registry import codec_config
from connectors.config import SinkConfig, SourceConfig
from pipelines.conditions.condition import Described, condition, singly
from pipelines.data.batch import Batch
from pipelines.data.data import Data
from pipelines.definitions.graph import Graph
from pipelines.definitions.pipeline import Pipeline
from pipelines.definitions.walk import Part
from pipelines.errors import nearest
from pipelines.runners.forms import ArrayForm, Form, Forms, ImageForm
from pipelines.runners.runner import Runner
from pipelines.steps import AnyOf, GraphStep, Merge, PipelineStep, Step, Switch, SwitchOutput
from pipelines.values import Image, ValueType
from streamer.definition.service import Service
from streamer.routing.template import template

_INPUT = "input"
"""The name of a graph's input."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of records at one place of a service."""

    sure: frozenset[str] = frozenset()
    """Keys that all records have there, because the service file names or makes them."""
    possible: frozenset[str] | None = None
    """All keys that records may have; `None`: not known."""
    forms: Forms = field(default_factory=dict)
    """The known forms of values, by key."""

    def plus(self, more: Iterable[str]) -> Keys:
        """A copy with these keys too, the forms of whose values are not known."""
        added = frozenset(more)
        possible = None if self.possible is None else self.possible | added
        return Keys(self.sure | added, possible, {key: form for key, form in self.forms.items() if key not in added})


@dataclass(frozen=True, slots=True)
class StepKeys:
    """The keys that a step needs and gives, and the forms of values."""

    needs: frozenset[str]
    """Keys without which records fail."""
    gives: frozenset[str] | None
    """Keys that it writes into every result; `None`: not known."""
    keeps: bool
    """Whether other keys pass through it."""
    forms: Callable[[Forms], Forms]
    """The forms of values in its results (`Runner.forms`)."""
    misfit: Callable[[Forms, frozenset[str] | None], str | None]
    """Why it fails every record with values of these forms (`Runner.misfit`)."""

    @classmethod
    def of(cls, runner: Runner) -> StepKeys:
        """The keys and forms that this runner declares."""
        return cls(runner.needs, runner.gives, runner.keeps_keys, runner.forms, runner.misfit)

    def after(self, before: Keys) -> Keys:
        """The keys of the step's results for records with the keys `before`."""
        if self.gives is None:
            result_keys = Keys()
        else:
            result_keys = before.plus(self.gives) if self.keeps else Keys(self.gives, self.gives)
        return replace(result_keys, forms=self.forms(before.forms))

    def error(self, there: Keys) -> str | None:
        """The error that the step has with every record with these keys; `None` if none is known."""
        return _lacking(self.needs, there) or self.misfit(there.forms, there.possible)

    def then(self, other: StepKeys) -> StepKeys:
        """The keys of this step and of `other` behind it, as of a single step."""
        given = self.gives or frozenset()
        later = other.needs - given if self.keeps and self.gives is not None else frozenset()
        if other.gives is None or (other.keeps and self.gives is None):
            gives, keeps = None, False
        else:
            gives, keeps = given | other.gives if other.keeps else other.gives, self.keeps and other.keeps

        def misfit(forms: Forms, possible: frozenset[str] | None) -> str | None:
            between = self.after(Keys(possible=possible, forms=forms))
            return self.misfit(forms, possible) or other.misfit(between.forms, between.possible)

        return StepKeys(self.needs | later, gives, keeps, lambda forms: other.forms(self.forms(forms)), misfit)


def of_input(service: Service, *, ask: bool = False) -> Keys:
    """The keys of the records of all sources before the first step; with `ask` also from the latest schemas in
    registries."""
    return _either([of_source(config, ask=ask) for config in service.sources])


def of_source(config: SourceConfig, *, ask: bool = False) -> Keys:
    """The same of the records of one source, before its `where`."""
    codec = codec_config(config.codec)
    named = [None] if not ask or any(set(name) & set("^{}+#") for name in config.topic_names) else config.topic_names
    of_topics = [_there(codec, topic) for topic in named or [None]]
    return _either(of_topics).plus(config.into.values())


def _there(codec: CodecConfig, topic: str | None) -> Keys:
    try:
        fields = codec.read_fields(topic)
    except Exception:  # noqa: BLE001 - a schema that is wrong or cannot be had is a finding about the codec
        return Keys()
    if fields is None:
        return Keys()
    forms: Forms = dict.fromkeys(fields.images, ImageForm())
    return Keys(forms=forms) if fields.others else Keys(fields.names, fields.names, forms)


def at_steps(pipeline: Pipeline, given: Keys, steps: Mapping[str, StepKeys]) -> dict[str, Keys]:
    """The keys that records have before each step, by its name, and under "" those of results.

    `steps` has the steps whose keys are known.
    """
    if isinstance(pipeline, Graph):
        return _in_graph(pipeline, given, steps)
    before: dict[str, Keys] = {}
    for name, _ in pipeline.named_steps():
        before[name] = given
        given = steps[name].after(given) if name in steps else Keys()
    return {**before, "": given}


def _in_graph(graph: Graph, given: Keys, steps: Mapping[str, StepKeys]) -> dict[str, Keys]:
    before: dict[str, Keys] = {}
    after = {_INPUT: given}
    for name, node in graph.in_order.items():
        inputs = [after.get(name, Keys()) for name in node.inputs]
        if isinstance(node.step, GraphStep):
            after[name] = _through(node.step, inputs)
            continue
        before[name] = inputs[0] if len(inputs) == 1 else Keys()
        after[name] = steps[name].after(before[name]) if name in steps else Keys()
    return {**before, "": after.get(graph.output, Keys())}


def _through(step: GraphStep, inputs: list[Keys]) -> Keys:
    if isinstance(step, Merge):
        return _joined(inputs)
    return _either(inputs) if isinstance(step, (Switch, SwitchOutput, AnyOf)) else Keys()


def _joined(inputs: list[Keys]) -> Keys:
    either = _either(inputs)
    forms = [(key, form) for keys in inputs for key, form in keys.forms.items()]
    times = Counter(key for key, _ in forms)
    # A key of several inputs fails the record, or is that of one of them.
    once = {key: form for key, form in forms if times[key] == 1}
    return Keys(frozenset().union(*(keys.sure for keys in inputs)), either.possible, once)


def _either(choices: list[Keys]) -> Keys:
    possible = [keys.possible for keys in choices]
    known = [names for names in possible if names is not None]
    return Keys(
        frozenset.intersection(*(keys.sure for keys in choices)),
        frozenset().union(*known) if len(known) == len(possible) else None,
        {key: form for key, form in choices[0].forms.items() if all(keys.forms.get(key) == form for keys in choices)},
    )


def _lacking(needs: frozenset[str], there: Keys) -> str | None:
    absent = [] if there.possible is None else sorted(needs - there.possible)
    if not absent or there.possible is None:
        return None
    hint = nearest(absent[0], there.possible)
    return f"it needs {_quoted(absent)}, but records have {_listed(there.possible)} here{hint}"


def with_inner(parts: Sequence[Part], steps: Mapping[str, StepKeys]) -> dict[str, StepKeys]:
    """`steps`, with PIPELINE steps added whose inner steps, `outer/inner`, are all among them."""
    known = dict(steps)
    for part in reversed(parts):
        if not isinstance(part.what, PipelineStep):
            continue
        inner = [step for step in parts if step.name.rpartition("/")[0] == part.name]
        if inner and all(isinstance(step.what, Step) and not step.inputs and step.name in known for step in inner):
            known[part.name] = reduce(StepKeys.then, (known[step.name] for step in inner))
    return known


def of_results(service: Service, given: Keys, made: Keys) -> Keys:
    """The keys of results: those that the pipeline made, and those that `keep` puts back."""
    if service.keep is None:
        return made
    if service.keep == "all":
        possible = None if made.possible is None or given.possible is None else made.possible | given.possible
        return Keys(made.sure | given.sure, possible)
    back = [key for key in service.keep if given.possible is None or key in given.possible]
    return made.plus(back)


def written(config: SinkConfig, results: Keys) -> Keys:
    """The keys of results that this sink writes."""
    if config.keys is not None:
        named = frozenset(config.keys)
        sure = named if results.possible is None else named & results.possible
        results = Keys(sure, sure)
    dropped = frozenset(config.drop)
    return Keys(results.sure - dropped, None if results.possible is None else results.possible - dropped)


def unfitting(config: SourceConfig, given: Keys) -> Iterator[str]:
    """The errors of this source's `where` for values that no record has, by which all would pass by."""
    absent = sorted({key for each in singly(config.where) for key in _needed(each)} - (given.possible or frozenset()))
    if given.possible is not None and absent:
        yield (
            f"where needs {_quoted(absent)}, but records have {_listed(given.possible)} (metadata become values by "
            f"into){nearest(absent[0], given.possible)}"
        )


def unfilled(config: SinkConfig, results: Keys) -> Iterator[str]:
    """The errors of this sink's settings that name values which no result has."""
    if results.possible is None:
        return
    addressing = config.addressing
    named: dict[str, Iterable[str]] = {"keys": config.keys or ()}
    named["when"] = [key for each in singly(config.when) for key in _needed(each)]
    if addressing is not None:
        named["topic"] = template(addressing.topic, None).values
        named["key"] = () if addressing.key is None else (addressing.key,)
    for setting, keys in named.items():
        absent = sorted(set(keys) - results.possible)
        if absent:
            yield (
                f"{setting} needs {_quoted(absent)}, but results have {_listed(results.possible)} (a value of the "
                f"record is kept by keep: [{absent[0]}]){nearest(absent[0], results.possible)}"
            )


def incomparable(config: SinkConfig, results: Keys) -> Iterator[str]:
    """The errors of this sink's `when` for values whose form cannot be compared."""
    for each in map(condition, singly(config.when)):
        for key in sorted(each.names):
            example = _example(results.forms.get(key))
            if example is not None:
                _, failures = each.rows(Batch.of([Data({key: example})]))
                yield from map(str, failures.values())


def _needed(described: Described) -> Iterable[str]:
    """The keys without which nothing is chosen, as far as that is sure."""
    if isinstance(described, str):
        return condition(described).names
    return [key for key, test in described.items() if not (isinstance(test, Mapping) and "exists" in test)]


def _example(form: Form | None) -> object:
    """A value of this form; `None` if some values of the form can be compared and others cannot."""
    if isinstance(form, ImageForm):
        return Image(np.zeros((1, 1, 3), np.uint8))
    if isinstance(form, ArrayForm):
        # An array of one number is compared as that number.
        lengths = None if form.shape is None else [1 if length is None else length for length in form.shape]
        return None if lengths is None or math.prod(lengths) == 1 else np.zeros(lengths, form.dtype)
    return None if form is None else _EXAMPLES.get(form.type)


_EXAMPLES: Final[Mapping[ValueType, object]] = {ValueType.LIST: [0.0], ValueType.DATA: Data({})}


def misfits(fields: PayloadFields, there: Keys) -> Iterator[str]:
    """The errors of writing results with these keys by a schema with these fields."""
    strange = [] if fields.others else sorted(there.sure - fields.names)
    if strange:
        yield (
            f"the schema of the results has no field {_quoted(strange)}: choose what the sink writes (drop: "
            f"[{', '.join(strange)}], or keys: [NAME]), or add the field{nearest(strange[0], fields.names)}"
        )
    absent = [] if there.possible is None else sorted(fields.required - there.possible)
    if absent and there.possible is not None:
        yield (
            f"the schema of the results requires {_quoted(absent)}, but results have {_listed(there.possible)}: keep "
            f"the value of the record (keep: [{absent[0]}]), make it in a step, or give the field a default"
            f"{nearest(absent[0], there.possible)}"
        )


def _quoted(keys: Iterable[str]) -> str:
    return ", ".join(f'"{key}"' for key in keys)


def _listed(keys: Iterable[str]) -> str:
    return ", ".join(sorted(keys)) or "no values"
