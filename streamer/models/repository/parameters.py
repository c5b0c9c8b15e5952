"""`Parameters`: how a model of a repository is to be loaded, as clients say it; and services with such parameters."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from pydantic import ValidationError

from pipelines.definitions.document import Document
from pipelines.definitions.overriding import overridden
from pipelines.definitions.pipeline import Pipeline
from pipelines.definitions.validation import definition_error
from pipelines.definitions.walk import Part, walk
from pipelines.errors import DefinitionError, nearest
from pipelines.plugins.modelfiles import is_remote
from pipelines.runners.runner import OpenContext
from streamer.definition.service import Service

CONFIG: Final = "config"
"""The parameter that holds fields of the service as JSON text."""
SHARE: Final = "share"
OTHERS: Final = frozenset({"unload_dependents"})
"""Parameters that clients send, and that change nothing here."""
FIELDS: Final = ("set", "batch", "limits")
"""The fields of a service that `config` may override."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a load asks for."""

    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Fields of `set`, `batch` and `limits` that override those of the service."""
    share: bool = True
    """Whether an endpoint that has these fields is shared as it is; else it gets one more worker."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """The parameters of a request. Raises `DefinitionError` for those that there are not."""
        fields: dict[str, dict[str, Any]] = {}
        share = given.get(SHARE, True)
        if not isinstance(share, bool):
            raise DefinitionError(f"{SHARE}: true or false is needed, not {json.dumps(share)}")
        if (config := given.get(CONFIG)) not in (None, ""):
            fields = _fields_in(config)
        for name, value in given.items():
            if name.startswith("file:"):
                raise DefinitionError(f"{name}: models are files of the repository, and not sent with a request")
            if name in OTHERS or name in (CONFIG, SHARE):
                continue
            if "." not in name:
                known = (CONFIG, SHARE)
                raise DefinitionError(
                    f'"{name}" is no parameter{nearest(name, known)}; there are {", ".join(known)}, and fields of '
                    "steps, STEP.FIELD as in `set`"
                )
            fields.setdefault("set", {})[name] = value
        return cls({name: values for name, values in fields.items() if values}, share)

    @property
    def key(self) -> str:
        """Equal for parameters that ask for the same, whatever their order."""
        return json.dumps(self.fields, sort_keys=True, default=str)


def _fields_in(config: object) -> dict[str, dict[str, Any]]:
    try:
        value = json.loads(config) if isinstance(config, (str, bytes)) else config
    except (ValueError, RecursionError) as error:
        raise DefinitionError(f"{CONFIG} is no JSON: {error}") from None
    if not isinstance(value, Mapping):
        raise DefinitionError(f"{CONFIG} is an object of JSON with {', '.join(FIELDS)}")
    fields: dict[str, dict[str, Any]] = {}
    for name, part in value.items():
        if name not in FIELDS:
            raise DefinitionError(
                f'{CONFIG}: "{name}" cannot be overridden{nearest(name, FIELDS)}; {", ".join(FIELDS)} can'
            )
        if not isinstance(part, Mapping):
            raise DefinitionError(f"{CONFIG}: {name} is an object of JSON, {{FIELD: VALUE}}")
        fields[name] = dict(part)
    return fields


def adapted(service: Service, name: str, parameters: Parameters, folder: Path, more: int = 0) -> Service:
    """The service under this name, with these parameters, and `more` batches that may run at the same time.

    What a client says may choose no code, and no files but those in `folder`. Raises `DefinitionError` for that, and
    for fields that do not fit.
    """
    if name == service.name and not parameters.fields and not more:
        return service
    fields = {given: getattr(service, given) for given in service.model_fields_set}
    for given, values in parameters.fields.items():
        fields[given] = _merged(fields.get(given), values)
    if more:
        limits = _merged(fields.get("limits"), {})
        fields["limits"] = {**limits, "parallel": limits.get("parallel", 1) + more}
    if "set" in fields:
        # First, as the service reads definitions that fields name.
        _check(service.sequence(), overridden(service.pipeline, fields["set"]), folder)
    try:
        changed = Service.model_validate({**fields, "name": name}, context={"base": folder})
    except ValidationError as error:
        raise definition_error(error, Document(fields, None), Service) from None
    if service.no_code is not None:
        changed = changed.without_code(service.no_code)
    return changed if service.written is None else changed.written_in(service.written)


def _merged(held: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `held`, as they were given, overridden by others."""
    if isinstance(held, Mapping):
        return {**held, **values}
    if held is None or values.get("type", getattr(held, "type", None)) != getattr(held, "type", None):
        return dict(values)
    return {**{name: getattr(held, name) for name in held.model_fields_set}, **values}


def _check(before: Pipeline, after: Pipeline, folder: Path) -> None:
    parts = {part.name: part for part in walk(before)}
    for part in walk(after):
        was = parts.get(part.name)
        if was is not None and was.what == part.what:
            continue
        if part.what.code_keys:
            raise DefinitionError(f"step {part.name} runs code: its fields are the repository's, and no parameters")
        for key, why in part.what.option_keys.items():
            if was is None or _field(was, key) != _field(part, key):
                raise DefinitionError(f"step {part.name}: {key} {why}; parameters cannot set it")
        files = set() if was is None else set(_files(was))
        for file in _files(part):
            if file not in files and (is_remote(file) or not _is_in(OpenContext(base=part.base).path(file), folder)):
                raise DefinitionError(
                    f"step {part.name}: {file} is no file of {folder.name}/; parameters name no other"
                )


def _field(part: Part, key: str) -> object:
    """The field of a step that holds this key, or a key inside it."""
    name = key.partition(".")[0]
    return getattr(part.what, type(part.what).keys().get(name, name), None)


def _files(part: Part) -> Iterator[str]:
    yield from map(str, part.what.files)
    yield from map(str, part.what.data_files)
    yield from (value for name in part.what.parts if isinstance(value := getattr(part.what, name), str))


def _is_in(file: Path, folder: Path) -> bool:
    try:
        return file.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError, ValueError):
        return False
