"""Validates plain data by a pydantic model; errors name file, line, key and the nearest known name."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from pipelines.definitions.document import Document, KeyPath
from pipelines.errors import DefinitionError, nearest

Unknown = Literal["error", "warn"]
"""The treatment of an unknown key: an error, or ignored with a warning (`UnknownKeyWarning`)."""

_ALIKE = tuple(
    frozenset(words.split())
    for words in (
        "url uri address broker brokers bootstrap bootstrapserver bootstrapservers server servers host hosts endpoint "
        "endpoints connection listen",
        "topic topics channel channels queue queues subject",
        "codec format encoding serializer deserializer serialization valueserializer valuedeserializer",
        "group groupid consumergroup",
        "username user login",
        "password passwd pass",
        "start offset reset autooffsetreset",
        "modeluri model modelpath modelfile weights path file",
        "when filter condition",
        "keep passthrough forward",
        "maxrecords batchsize maxbatch maxbatchsize size",
        "maxwait linger lingerms timeout maxdelay",
        "deadletter deadletterqueue deadlettertopic dlq",
        "delivery guarantee semantics processingguarantee",
        "source sources input inputs from",
        "sink sinks output outputs to",
        "pipeline pipelines steps",
        "classlabels labels classes classnames",
    )
)
"""Words that mean the same in other systems' configurations, without signs between their parts."""
Model = TypeVar("Model", bound=BaseModel)


class UnknownKeyWarning(UserWarning):
    """An unknown key was ignored, as the caller passed `unknown="warn"`."""


def validated(
    model: type[Model],
    document: Document,
    *,
    unknown: Unknown = "error",
    context: Mapping[str, Any] | None = None,
    apart: Container[object] = (),
) -> Model:
    """The document's data as a `model`; `context` is passed to its validators.

    Raises `DefinitionError` naming file, line and key. Errors at the keys `apart`, which the caller has reported
    already, are left out of its problems.
    """
    data = document.data
    while True:
        try:
            return model.model_validate(data, context=context)
        except ValidationError as error:
            current = Document(data, document.file, document.place, document.prefix)
            strangers = [detail for detail in error.errors() if detail["type"] == "extra_forbidden"]
            if unknown == "error" or not strangers:
                raise definition_error(error, current, model, apart=apart) from error
            for detail in strangers:
                path = _located(detail["loc"], data)
                warn_unknown(f"{current.where(path)}no such field; ignored{_hint(detail, path, model)}")
                data = _without(data, path)


def definition_error(
    error: ValidationError,
    document: Document,
    model: type[BaseModel] | None = None,
    *,
    apart: Container[object] = (),
) -> DefinitionError:
    """A `DefinitionError` made of pydantic's error about `document.data`, with a problem for each wrong value.

    With the `model`, the problem of an unknown key names the nearest known one, or all known ones. With `apart`, errors
    at these keys and errors about the whole document are left out.
    """
    problems: dict[KeyPath, list[str]] = {}
    shown: dict[KeyPath, str] = {}
    of_type: set[KeyPath] = set()
    for detail in error.errors():
        if apart and (not detail["loc"] or detail["loc"][0] in apart):
            continue
        path = _located(detail["loc"], document.data)
        if detail["type"] == "missing":
            path = (*path, str(detail["loc"][-1]))
        elif detail["type"].startswith("union_tag"):
            path = (*path, detail["ctx"]["discriminator"].strip("'"))
        message = _message(detail, path, model)
        # Each member of a union has its own complaint about the same value.
        if message not in problems.setdefault(path, []):
            problems[path].append(message)
        shown[path] = _shown(detail, path)
        if detail["type"] in ("string_type", "list_type", "tuple_type", "dict_type", "bool_type"):
            of_type.add(path)
    for path in of_type:
        # Another member of the union takes such a value, and says what is wrong inside it.
        if any(len(other) > len(path) and other[: len(path)] == path for other in problems):
            problems.pop(path)
    for path in _misspelt(error, document.data, model):
        # The missing key is there, misspelt: that has a problem of its own.
        problems.pop(path, None)
    ordered = sorted(problems, key=lambda path: document.line(path) or 0)
    return DefinitionError(*(document.where(path) + " or ".join(problems[path]) + shown[path] for path in ordered))


def nearest_or_known(name: str, known: Sequence[str], spellings: Iterable[str] = ()) -> str:
    """`; did you mean "X"?` for the known key that means the same as `name` or is closest to it; else all known keys.

    Args:
        name: The unknown key.
        known: The known keys.
        spellings: Other spellings of known keys.
    """
    return _meant(name, [*known, *spellings]) or (f"; delete it: known are {', '.join(known)}" if known else "")


def _meant(name: str, known: Sequence[str]) -> str:
    plain = _plain(name)
    alike = [words for words in _ALIKE if plain in words]
    same = [key for words in alike for key in known if _plain(key) in words]
    return f'; did you mean "{same[0]}"?' if same else nearest(name, known)


def _plain(key: str) -> str:
    return re.sub(r"[^a-z0-9]", "", key.lower())


def warn_unknown(message: str) -> None:
    """Give an `UnknownKeyWarning` that points at the code that called this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("pipelines."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, UnknownKeyWarning, stacklevel=level)


def _models_at(model: type[BaseModel], loc: Iterable[str | int]) -> list[type[BaseModel]]:
    """The models at a location in pydantic's form: field names, list indexes and union members."""
    models = _models(model)
    for part in loc:
        inner = [
            annotation
            for candidate in models
            for annotation in [_field_annotation(candidate, part)]
            if annotation is not None
        ]
        if inner:
            models = [model for annotation in inner for model in _models(annotation)]
        else:
            # Skip list indexes; a union member is identified by its class name or tag.
            models = [candidate for candidate in models if _is_member(candidate, part)] or models
    return models


def _in_order(models: Sequence[type[BaseModel]]) -> list[str]:
    """The keys of these models as they are written.

    Those that are required come first, then those that a model has for itself, in their order, and those that it shares
    with others of its kind at the end.
    """
    ranked: list[tuple[int, str]] = []
    for model in models:
        depth = {name: at for at, base in reversed(list(enumerate(model.__mro__))) for name in _annotations(base)}
        for name, info in model.model_fields.items():
            rank = -1 if info.is_required() else depth.get(name, 0)
            ranked.append((rank, info.alias or name))
    return list(dict.fromkeys(key for _, key in sorted(ranked, key=lambda entry: entry[0])))


def _spellings(models: Sequence[type[BaseModel]]) -> list[str]:
    """All keys, in any spelling, of those models that list them by `keys()`."""
    listed = [keys() for model in models if callable(keys := getattr(model, "keys", None))]
    return sorted({key for keys in listed for key in keys})


def _annotations(model: type) -> Iterable[str]:
    annotations: Mapping[str, Any] = vars(model).get("__annotations__", {})
    return annotations


_WORDING = (
    ("Input should", "must"),
    (" a valid tuple", " a list"),
    (" a valid list", " a list"),
    (" a valid dictionary", " a mapping"),
    (" a valid integer", " an integer"),
    (" a valid ", " a "),
    (", unable to parse string as an integer", ""),
    (", unable to parse string as a number", ""),
    (", unable to interpret input", ""),
    (" after validation", ""),
)
_SHOULD_HAVE = re.compile(r"^(?:Tuple|List|Dictionary|Set|Frozenset|String) should have")
_OR_INSTANCE = re.compile(r" or instance of \w+")
_UNSHOWN = ("value_error", "assertion_error", "missing", "extra_forbidden", "union_tag_invalid", "union_tag_not_found")
_SECRET = ("password", "secret", "token", "pem", "key", "credential", "auth")


def _message(error: ErrorDetails, path: KeyPath, model: type[BaseModel] | None) -> str:
    kind = error["type"]
    if kind == "extra_forbidden":
        models = [] if model is None else _models_at(model, error["loc"][:-1])
        return f"no such field{nearest_or_known(str(path[-1]), _in_order(models), _spellings(models))}"
    if kind == "missing":
        return "is required"
    if kind == "union_tag_not_found":
        return "is required"
    if kind == "union_tag_invalid":
        known = [tag.strip(" '") for tag in error["ctx"]["expected_tags"].split(",")]
        tag = error["ctx"]["tag"]
        return f'no such type: "{tag}"' + (nearest(tag, known) or "; known are " + ", ".join(known))
    text = error["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
    for theirs, ours in _WORDING:
        text = text.replace(theirs, ours)
    text = _OR_INSTANCE.sub("", _SHOULD_HAVE.sub("must have", text))
    if kind == "string_type" and isinstance(error["input"], (int, float)):
        text += " in quotes"
    # Not if it begins with a word in capitals, such as the type of a step.
    return text if text[1:2].isupper() else text[:1].lower() + text[1:]


def _shown(error: ErrorDetails, path: KeyPath) -> str:
    value = error["input"]
    if error["type"] in _UNSHOWN or not isinstance(value, (str, int, float, type(None))):
        return ""
    if any(word in str(part).lower() for part in path for word in _SECRET):
        return ""
    text = repr(value)
    return f", not {text if len(text) <= 60 else text[:57] + '...'}"


def _misspelt(error: ValidationError, data: Any, model: type[BaseModel] | None) -> list[KeyPath]:
    """The required keys that an unknown key was meant to be."""
    details = error.errors()
    hints = [
        (path[:-1], _hint(detail, path, model))
        for detail in details
        if detail["type"] == "extra_forbidden" and (path := _located(detail["loc"], data))
    ]
    missing = [
        (_located(detail["loc"], data), str(detail["loc"][-1])) for detail in details if detail["type"] == "missing"
    ]
    return [(*path, key) for path, key in missing if any(path == place and f'"{key}"' in hint for place, hint in hints)]


def _hint(error: ErrorDetails, path: KeyPath, model: type[BaseModel] | None) -> str:
    models = [] if model is None else _models_at(model, error["loc"][:-1])
    return _meant(str(path[-1]), [*_in_order(models), *_spellings(models)])


def _located(loc: Iterable[str | int], data: Any) -> KeyPath:
    """The path in the data, with its spelling of the keys and without the names of union members."""
    path: list[str | int] = []
    for part in loc:
        if isinstance(data, Mapping) and isinstance(part, str):
            key = part if part in data else next((key for key in data if _alike(key) == _alike(part)), None)
        elif isinstance(data, (list, tuple)) and isinstance(part, int) and part < len(data):
            key = part
        else:
            key = None
        if key is not None:
            path.append(key)
            data = data[key]
    return tuple(path)


def _alike(key: object) -> str:
    return str(key).replace("_", "").lower()


def _without(data: Any, path: KeyPath) -> Any:
    if len(path) == 1:
        return {key: value for key, value in data.items() if key != path[0]}
    if isinstance(data, Mapping):
        return {key: _without(value, path[1:]) if key == path[0] else value for key, value in data.items()}
    return [_without(value, path[1:]) if i == path[0] else value for i, value in enumerate(data)]


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    if get_origin(annotation) is Annotated:
        return _models(get_args(annotation)[0])
    return [model for inner in get_args(annotation) for model in _models(inner)]


def _field_annotation(model: type[BaseModel], part: str | int) -> Any:
    for name, info in model.model_fields.items():
        if part in (name, info.alias, info.validation_alias):
            return info.annotation
    return None


def _is_member(model: type[BaseModel], part: str | int) -> bool:
    if part == model.__name__:
        return True
    literals = (info.annotation for info in model.model_fields.values() if get_origin(info.annotation) is Literal)
    return any(part in get_args(literal) for literal in literals)
