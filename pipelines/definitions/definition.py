"""Pipeline definitions: Konduit Serving's JSON and YAML, read into a `Sequence`, a `Graph` or an `Async`.

Every spelling that Konduit reads or writes is accepted in both forms, and so are its coercions; an absent key means
the documented default. Errors name file, line and key.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_camel

from pipelines.batching import BATCH_KEY, checked_batch
from pipelines.definitions.asynchronous import TRIGGER_KEY, Async
from pipelines.definitions.document import TEXT, Document, Problems
from pipelines.definitions.documents import parse_document, read_document
from pipelines.definitions.graph import INPUT_KEY, Graph
from pipelines.definitions.pipeline import Pipeline
from pipelines.definitions.sequence import Sequence
from pipelines.definitions.typereader import LoadOptions, Refused, kind_of, none_refused, read_typed, read_typed_of
from pipelines.definitions.validation import Unknown, nearest_or_known, warn_unknown
from pipelines.definitions.wiring import Node, WiringError
from pipelines.errors import DefinitionError, nearest
from pipelines.plugins.registry import Registry, default_registry
from pipelines.steps import GraphStep, Step, Trigger, Typed
from pipelines.steps.base import TYPE_KEY

OUTPUT_KEY = "outputStep"
INPUTS_KEY = "@inputs"
PIPELINE_KEYS = ("steps", "id", "name", BATCH_KEY, TYPE_KEY, TRIGGER_KEY)
PIPELINE_KEY = "pipeline"
_CONFIGURATION_FIELDS = (
    *("host", "port", "protocol", "use_ssl", "ssl_key_path", "ssl_certificate_path", "custom_endpoints"),
    *("static_content_root", "static_content_url", "static_content_index_page"),
    *("kafka_configuration", "mqtt_configuration"),
)
CONFIGURATION_KEYS = frozenset((*_CONFIGURATION_FIELDS, *map(to_camel, _CONFIGURATION_FIELDS)))
"""Konduit Serving's keys beside the pipeline in an `InferenceConfiguration`, its file of a server."""


def load(
    path: str | PathLike[str],
    *,
    unknown: Unknown = "error",
    registry: Registry | None = None,
    refused: Refused = none_refused,
) -> Pipeline:
    """The pipeline that a JSON or YAML file defines; relative paths in it start at the file's folder.

    Of a Konduit Serving configuration (`InferenceConfiguration`, of any protocol) it is the pipeline inside. With
    `unknown="warn"` unknown keys are ignored with an `UnknownKeyWarning`. `refused` says of each further file that the
    definition names as a pipeline why it may not be read (`None`: it may). Raises `DefinitionError`.
    """
    base = Path(path).absolute().parent
    return read_pipeline(read_document(path), base=base, unknown=unknown, registry=registry, refused=refused)


def loads(
    text: str | bytes,
    base: str | PathLike[str] | None = None,
    *,
    unknown: Unknown = "error",
    registry: Registry | None = None,
) -> Pipeline:
    """The pipeline that a JSON or YAML text defines; relative paths in it start at `base`. Otherwise as `load`."""
    return read_pipeline(parse_document(text, TEXT), base=base, unknown=unknown, registry=registry)


def read_pipeline(
    document: Document,
    *,
    base: str | PathLike[str] | None = None,
    unknown: Unknown = "error",
    registry: Registry | None = None,
    refused: Refused = none_refused,
) -> Pipeline:
    """The pipeline that a document, or a part of one (`document.at("pipeline")`), defines; `refused` as in `load`.

    Raises:
        DefinitionError: The definition is invalid.
    """
    folder = None if base is None else Path(base)
    return _read(document, LoadOptions(registry or default_registry(), unknown, folder, _read_part, refused=refused))


def _read(document: Document, reading: LoadOptions) -> Pipeline:
    data = document.data
    if not isinstance(data, dict):
        # A file that is not a definition may hold secrets: its content is not shown.
        kind = kind_of(data) if document.prefix or data is None or isinstance(data, list) else "a single value"
        raise document.error((), f'a pipeline is a mapping with "steps", not {kind}')
    if _is_configuration(data):
        return _read(document.at(PIPELINE_KEY), reading)
    _check_kind(document, data)
    problems = Problems()
    _check_keys(document, data, reading.unknown, problems)
    batch = problems.tried(lambda: _batch(document, data, reading))
    read = _graph if isinstance(data["steps"], dict) else _sequence
    pipeline = problems.tried(lambda: read(document, data, reading, batch))
    trigger = None
    if TRIGGER_KEY in data:
        trigger = problems.tried(lambda: read_typed(document.at(TRIGGER_KEY), Trigger, reading))
    problems.check()
    assert pipeline is not None
    return pipeline if trigger is None else Async(pipeline, trigger)


def _read_part(document: Document, reading: LoadOptions) -> Pipeline | str:
    """The pipeline of a step: a definition, or the path of one, which is read here only to check it."""
    if not isinstance(document.data, str):
        return _read(document, reading)
    path = ((reading.base or Path.cwd()) / document.data).absolute()
    if path in reading.files:
        raise document.error((), "is a file that this pipeline is itself part of")
    if (why := reading.refused(path)) is not None:
        raise document.error((), why)
    try:
        _read(read_document(path), replace(reading, base=path.parent, files=(*reading.files, path)))
    except DefinitionError as error:
        raise error if path.is_file() else document.error((), str(error)) from None
    return document.data


def _batch(document: Document, data: dict[str, Any], reading: LoadOptions) -> dict[str, Any] | None:
    return None if data.get(BATCH_KEY) is None else checked_batch(document.at(BATCH_KEY), reading.unknown)


def _sequence(document: Document, data: dict[str, Any], reading: LoadOptions, batch: dict[str, Any] | None) -> Pipeline:
    problems = Problems()
    read = [
        problems.tried(partial(read_typed, document.at("steps", i), Step, reading)) for i in range(len(data["steps"]))
    ]
    problems.check()
    steps = [step for step in read if step is not None]
    identifier, name = _text(document, data, "id"), _text(document, data, "name")
    try:
        return Sequence(steps, id=identifier, name=name, base=reading.base, batch=batch)
    except DefinitionError as error:
        raise document.error((), str(error)) from None


def _graph(document: Document, data: dict[str, Any], reading: LoadOptions, batch: dict[str, Any] | None) -> Pipeline:
    problems = Problems()
    read = {name: problems.tried(partial(_node, document.at("steps", name), reading)) for name in data["steps"]}
    problems.check()
    nodes = {name: node for name, node in read.items() if node is not None}
    output, identifier, name = (_text(document, data, key) for key in (OUTPUT_KEY, "id", "name"))
    try:
        return Graph(nodes, output, id=identifier, name=name, base=reading.base, batch=batch)
    except WiringError as error:
        raise document.error(_place(error, data), error.reason) from None


def _node(document: Document, reading: LoadOptions) -> Node:
    data = document.data
    if not isinstance(data, dict):
        raise document.error((), f'a step is a mapping with "{TYPE_KEY}" and "{INPUT_KEY}", not {kind_of(data)}')
    keys = [key for key in (INPUT_KEY, INPUTS_KEY) if key in data]
    if len(keys) != 1:
        problem = f'"{INPUT_KEY}" and "{INPUTS_KEY}" are the same' if keys else f'"{INPUT_KEY}" is missing'
        raise document.error((), f'{problem}; name a step, a list of them, or "input" for the input of the graph')
    (key,) = keys
    inputs = data[key] if isinstance(data[key], list) else [data[key]]
    for input_name in inputs:
        if isinstance(input_name, bool) or not isinstance(input_name, (str, int)):
            raise document.error((key,), f"must be the name of a step or a list of names, not {kind_of(input_name)}")
    fields = Document({name: value for name, value in data.items() if name != key}, *_rest(document))
    bases: tuple[type[Typed], ...] = (Step, GraphStep)
    step = read_typed_of(fields, bases, reading)
    if not isinstance(step, (Step, GraphStep)):
        raise document.error((TYPE_KEY,), f"{step.type_name} is not a step")
    return Node(step, tuple(str(input_name) for input_name in inputs))


def _rest(document: Document) -> tuple[Any, Any, Any]:
    return document.file, document.place, document.prefix


def _place(error: WiringError, data: dict[str, Any]) -> tuple[str, ...]:
    if error.step is None:
        return (OUTPUT_KEY,) if error.at == "output" else ("steps",)
    if error.at is None:
        return ("steps", error.step)
    return ("steps", error.step, INPUT_KEY if INPUT_KEY in data["steps"][error.step] else INPUTS_KEY)


def _is_configuration(data: dict[str, Any]) -> bool:
    """Whether this is a server's configuration as Konduit Serving writes it, with a pipeline inside."""
    others = data.keys() - {PIPELINE_KEY}
    return isinstance(data.get(PIPELINE_KEY), dict) and bool(others) and others <= CONFIGURATION_KEYS


def _check_kind(document: Document, data: dict[str, Any]) -> None:
    steps = data.get("steps")
    if isinstance(steps, (list, dict)):
        return
    if "steps" in data:
        raise document.error(("steps",), f"must be a list of steps, not {kind_of(steps)}")
    if PIPELINE_KEY in data:
        raise document.error((), "this is a service file, not a pipeline: use streamer.load, or `streamer run` it")
    if TYPE_KEY in data:
        raise document.error((), 'this is a single step; a pipeline holds a list of them: {"steps": [...]}')
    raise document.error((), f'a pipeline needs "steps", a list{_hint(data)}')


def _check_keys(document: Document, data: dict[str, Any], unknown: Unknown, problems: Problems) -> None:
    known = (*PIPELINE_KEYS, OUTPUT_KEY) if isinstance(data["steps"], dict) else PIPELINE_KEYS
    for key in data:
        if key in known:
            continue
        if key == OUTPUT_KEY:
            text = "is for graphs, which have their steps by name; a sequence has a list of them"
            problems.add(document.error((key,), text))
            continue
        hint = nearest_or_known(key, known)
        if unknown == "error":
            problems.add(document.error((key,), f"no such field{hint}"))
            continue
        warn_unknown(f"{document.where((key,))}no such field; ignored{nearest(key, known)}")


def _text(document: Document, data: dict[str, Any], key: str) -> str | None:
    value = data.get(key)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    raise document.error((key,), f"must be a string, not {kind_of(value)}")


def _hint(data: dict[str, Any]) -> str:
    close = [key for key in data if nearest(key, ["steps"])]
    return f'; is "{close[0]}" meant to be "steps"?' if close else ""
