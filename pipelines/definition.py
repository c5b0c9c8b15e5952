"""Pipeline definitions: Konduit Serving's JSON and YAML, read into a `Sequence`.

Every spelling that Konduit reads or writes is accepted in both forms, and so are its coercions; an absent key means
the documented default. Errors name file, line and key.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from pipelines.documents import TEXT, Document, parse_document, read_document
from pipelines.errors import DefinitionError, nearest
from pipelines.registry import Registry, default_registry
from pipelines.sequence import Sequence
from pipelines.steps.base import TYPE_KEY, Step
from pipelines.steps.konduit import GRAPH_TYPES, MODEL_TYPES, STEP_TYPES
from pipelines.validation import Unknown, validated, warn_unknown

TRIGGER_KEY = "@AsyncTrigger"
PIPELINE_KEYS = ("steps", "id", "name", TYPE_KEY)


def load(path: str | PathLike[str], *, unknown: Unknown = "error", registry: Registry | None = None) -> Sequence:
    """The pipeline that a JSON or YAML file defines; relative paths in it start at the file's folder.

    With `unknown="warn"` unknown keys are ignored with an `UnknownKeyWarning`. Raises `DefinitionError`.
    """
    base = Path(path).absolute().parent
    return read_pipeline(read_document(path), base=base, unknown=unknown, registry=registry)


def loads(
    text: str | bytes,
    base: str | PathLike[str] | None = None,
    *,
    unknown: Unknown = "error",
    registry: Registry | None = None,
) -> Sequence:
    """The pipeline that a JSON or YAML text defines; relative paths in it start at `base`. Otherwise as `load`."""
    return read_pipeline(parse_document(text, TEXT), base=base, unknown=unknown, registry=registry)


def read_pipeline(
    document: Document,
    *,
    base: str | PathLike[str] | None = None,
    unknown: Unknown = "error",
    registry: Registry | None = None,
) -> Sequence:
    """The pipeline that a document, or a part of one (`document.at("pipeline")`), defines. Raises `DefinitionError`."""
    data = document.data
    if not isinstance(data, dict):
        raise document.error((), f'a pipeline is a mapping with "steps", not {_kind(data)}')
    _check_kind(document, data)
    _check_keys(document, data, unknown)
    steps = [
        _read_step(document.at("steps", i), unknown, registry or default_registry()) for i in range(len(data["steps"]))
    ]
    identifier, name = _text(document, data, "id"), _text(document, data, "name")
    try:
        return Sequence(steps, id=identifier, name=name, base=None if base is None else Path(base))
    except DefinitionError as error:
        raise document.error((), str(error)) from None


def _check_kind(document: Document, data: dict[str, Any]) -> None:
    if TRIGGER_KEY in data:
        raise document.error((TRIGGER_KEY,), "pipelines that a trigger runs are not available yet")
    steps = data.get("steps")
    if isinstance(steps, list):
        return
    if isinstance(steps, dict):
        raise document.error(("steps",), "graph pipelines are not available yet; a sequence has a list of steps")
    if "steps" in data:
        raise document.error(("steps",), f"must be a list of steps, not {_kind(steps)}")
    if "pipeline" in data:
        raise document.error((), "this is a service file, not a pipeline: use streamer.load, or `streamer run` it")
    if TYPE_KEY in data:
        raise document.error((), 'this is a single step; a pipeline holds a list of them: {"steps": [...]}')
    raise document.error((), f'a pipeline needs "steps", a list{_hint(data)}')


def _check_keys(document: Document, data: dict[str, Any], unknown: Unknown) -> None:
    for key in data:
        if key in PIPELINE_KEYS:
            continue
        hint = nearest(key, PIPELINE_KEYS)
        if unknown == "error":
            raise document.error((key,), f'no such field{hint} (unknown="warn" loads it all the same)')
        warn_unknown(f"{document.where((key,))}no such field; ignored{hint}")


def _read_step(document: Document, unknown: Unknown, registry: Registry) -> Step:
    data = document.data
    if not isinstance(data, dict):
        raise document.error((), f'a step is a mapping with "{TYPE_KEY}", not {_kind(data)}')
    if TYPE_KEY not in data:
        raise document.error((), f'"{TYPE_KEY}" is missing; known types are {_listed(registry)}')
    type_name = data[TYPE_KEY]
    step = registry.step_class(type_name) if isinstance(type_name, str) else None
    if step is None:
        raise document.error((TYPE_KEY,), _unknown_type(type_name, registry))
    return validated(step, document, unknown=unknown)


def _unknown_type(type_name: object, registry: Registry) -> str:
    if type_name in GRAPH_TYPES:
        return f"{type_name} is a step of graph pipelines, which are not available yet"
    if type_name in MODEL_TYPES:
        return f"{type_name} is a step of Konduit Serving that is not available yet; an ONNX model runs in an ONNX step"
    if type_name in STEP_TYPES:
        return f"{type_name} is a step of Konduit Serving that is not available yet; there are {_listed(registry)}"
    # Types are case-sensitive, but a hint need not be.
    hint = nearest(str(type_name).upper(), sorted({*registry.steps, *STEP_TYPES}))
    return f'no such step type: "{type_name}"{hint or f"; known are {_listed(registry)}"}'


def _listed(registry: Registry) -> str:
    return ", ".join(sorted(registry.steps))


def _text(document: Document, data: dict[str, Any], key: str) -> str | None:
    value = data.get(key)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    raise document.error((key,), f"must be a string, not {_kind(value)}")


def _hint(data: dict[str, Any]) -> str:
    close = [key for key in data if nearest(key, ["steps"])]
    return f'; is "{close[0]}" meant to be "steps"?' if close else ""


def _kind(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    return "a list" if isinstance(value, list) else repr(value)
