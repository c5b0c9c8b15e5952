"""Reads the parts of definitions that have a `@type`: steps, and the functions and triggers of steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from pipelines.definitions.document import Document, Problems
from pipelines.definitions.pipeline import Pipeline
from pipelines.definitions.validation import Unknown, validated
from pipelines.errors import nearest
from pipelines.plugins.catalog import RegistryError
from pipelines.plugins.registry import TYPE_GROUPS, Registry
from pipelines.steps import GraphStep, Step, Typed
from pipelines.steps.base import TYPE_KEY
from pipelines.steps.konduit import GRAPH_TYPES

Kind = TypeVar("Kind", bound=Typed)


Refused = Callable[[Path], str | None]
"""Why a file may not be read; `None` if it may."""


def none_refused(file: Path) -> str | None:
    """Refuses no file."""
    return None


@dataclass(frozen=True)
class LoadOptions:
    """Options for reading definitions, and where the reader is."""

    registry: Registry
    unknown: Unknown
    base: Path | None
    """Where relative paths start."""
    pipeline: Callable[[Document, LoadOptions], Pipeline | str]
    """Reads the pipeline of a step."""
    files: tuple[Path, ...] = ()
    """The files that lead here, from step to pipeline."""
    refused: Refused = none_refused
    """Which files may not be read."""


def read_typed(document: Document, base: type[Kind], reading: LoadOptions) -> Kind:
    """The document's data as an object of `base`: `read_typed(document, Step, reading)`. Raises `DefinitionError`."""
    value = read_typed_of(document, (base,), reading)
    if not isinstance(value, base):
        raise document.error((TYPE_KEY,), f"{value.type_name} is not a {base.kind}")
    return value


def read_typed_of(document: Document, bases: Sequence[type[Typed]], reading: LoadOptions) -> Typed:
    """The document's data as an object of one of these kinds. Raises `DefinitionError`."""
    data = document.data
    what = bases[0].kind
    if not isinstance(data, dict):
        raise document.error((), f'a {what} is a mapping with "{TYPE_KEY}", not {kind_of(data)}')
    if TYPE_KEY not in data:
        raise document.error((), f'"{TYPE_KEY}" is missing{_type_meant(data, bases, reading.registry)}')
    name = data[TYPE_KEY]
    for base in bases:
        try:
            model = reading.registry.type_class(base, name) if isinstance(name, str) else None
        except RegistryError as error:
            raise document.error((TYPE_KEY,), str(error)) from error
        if model is not None:
            return _of_model(document, model, reading)
    raise document.error((TYPE_KEY,), _unknown_type(name, bases, reading.registry))


def kind_of(value: object) -> str:
    """The value in messages: "a mapping", "a list", "nothing" for null, or a string or number itself."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, list) else repr(value)


def _of_model(document: Document, model: type[Typed], reading: LoadOptions) -> Typed:
    problems = Problems()
    with_parts, wrong = _with_parts(document, model, reading, problems)
    value = problems.tried(lambda: validated(model, with_parts, unknown=reading.unknown, apart=wrong))
    problems.check()
    assert value is not None
    return value


def _with_parts(
    document: Document, model: type[Typed], reading: LoadOptions, problems: Problems
) -> tuple[Document, set[str]]:
    """The document with its parts read, and the keys and fields of those that are wrong."""
    if not model.parts:
        return document, set()
    data, wrong = dict(document.data), set[str]()
    known = model.keys()
    for key, value in document.data.items():
        kind = model.parts.get(known.get(key, ""))
        if kind is None or value is None:
            continue
        data[key] = problems.tried(partial(_part, document.at(key), kind, reading))
        if data[key] is None:
            wrong |= {key, known[key]}
    return Document(data, document.file, document.place, document.prefix), wrong


def _part(document: Document, kind: str, reading: LoadOptions) -> Any:
    if kind == "pipeline":
        return reading.pipeline(document, reading)
    return read_typed(document, next(base for base in TYPE_GROUPS.values() if base.kind == kind), reading)


def _unknown_type(name: object, bases: Sequence[type[Typed]], registry: Registry) -> str:
    if Step not in bases:
        known = _names(bases, registry)
        hint = nearest(str(name).upper(), known) or f"; known are {', '.join(known)}"
        return f'no such {bases[0].kind} type: "{name}"{hint}'
    if name in GRAPH_TYPES or name in registry.types(GraphStep):
        return f'{name} is a step of graphs: give each step a name and its inputs, {{"steps": {{"a": {{...}}}}}}'
    # Types are case-sensitive, but a hint need not be.
    plain = str(name).upper().replace("-", "_").replace(" ", "_")
    if plain in _EXPORTED:
        hint = f"; export the model as ONNX ({_EXPORTED[plain]}), and write ONNX"
    else:
        hint = nearest(plain, _names(bases, registry)) or _LISTED
    return f'no such step type: "{name}"{hint}'


def _type_meant(data: Mapping[Any, Any], bases: Sequence[type[Typed]], registry: Registry) -> str:
    """The hint of the error about a part without `@type`: what to write instead."""
    known = _names(bases, registry)
    key = next((key for key in data if str(key).strip("@_").lower() in ("type", "step", "kind")), None)
    if key is not None:
        return f'; did you mean "{TYPE_KEY}" in place of "{key}"?'
    only = next((key for key in data if str(key).upper() in known), None)
    if only is not None:
        return f'; write {{"{TYPE_KEY}": {str(only).upper()}, ...}}, with its fields beside it'
    return _LISTED if Step in bases else f"; known types are {', '.join(known)}"


_LISTED: Final = (
    "; `streamer steps` lists all types, among them ONNX, FUNCTION, FEATURES, CLASSIFIER_OUTPUT, REGRESSION_OUTPUT and "
    "IMAGE_TO_NDARRAY"
)
_EXPORTED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("SKLEARN", "SCIKIT_LEARN", "SCIKITLEARN", "JOBLIB", "PICKLE"), "skl2onnx; docs/scikit-learn.md shows how"
    ),
    **dict.fromkeys(("XGBOOST", "XGB", "LIGHTGBM", "CATBOOST"), "onnxmltools or its own export"),
    **dict.fromkeys(("TORCH", "PYTORCH", "TORCHSCRIPT"), "torch.onnx.export"),
}
"""Libraries whose models run once exported to ONNX, and the exporter of each."""


def _names(bases: Sequence[type[Typed]], registry: Registry) -> list[str]:
    names: set[Any] = set().union(*(registry.types(base) for base in bases))
    return sorted(names)
