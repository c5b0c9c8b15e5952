"""Service files: YAML or JSON text into `Service`s, every error with file, line and key."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

import pipelines
from connectors.codecs.registry import CODECS, anchored
from connectors.config import ConnectorConfig, SourceConfig
from connectors.metadata.typedfields import TypedKeys
from connectors.registry import SINKS, SOURCES
from pipelines.definitions.definition import read_pipeline
from pipelines.definitions.document import TEXT, Document, KeyPath, Lines, Problems
from pipelines.definitions.documents import only, parse_documents, read_documents
from pipelines.definitions.validation import definition_error
from pipelines.errors import DefinitionError, StreamerError
from pipelines.plugins.catalog import Catalog
from streamer.batching.registry import settings_class
from streamer.definition.connectors.fields import checks, shadow_checks
from streamer.definition.connectors.reading import config_class
from streamer.definition.interpolate import InterpolationError, interpolate
from streamer.definition.konduit import from_konduit, is_konduit
from streamer.definition.naming import default_name
from streamer.definition.nocode import CODEC_KEYS, NoCode, code_allowed
from streamer.definition.service import Service
from streamer.definition.settings import BatcherSettings, Control
from streamer.observe.shown import masked, remember

Config = TypeVar("Config", bound=ConnectorConfig)
Model = TypeVar("Model", bound=BaseModel)
Registered = TypeVar("Registered", bound=BaseModel)

CONTROL_VARIABLE: Final = "STREAMER_CONTROL"
"""The environment variable with the address of the control port, `host:port`, which overrides that of service files: in
a container a port has to listen on all addresses, and the service file stays as it is on a developer's machine."""


def load(
    path: str | PathLike[str], *, environment: Mapping[str, str] | None = None, no_code: NoCode | None = None
) -> Service:
    """The service that a file defines; relative paths in it start at its folder.

    `environment` replaces the process's own for `${VAR}`. `no_code` is for untrusted definitions: the service runs no
    code, and uses no variables and files but those that are listed there (`streamer.NoCode`). The environment variable
    STREAMER_NO_CODE does the same for all services.

    Raises `DefinitionError` if the file is invalid, or defines no service or several (see `load_all`).
    """
    given = _Given.of(Path(path).parent, environment, no_code)
    return _service(only(read_documents(path), str(path)), default_name(Path(path)), given)


def load_all(
    path: str | PathLike[str], *, environment: Mapping[str, str] | None = None, no_code: NoCode | None = None
) -> list[Service]:
    """All services that a file defines, one a YAML document. Raises `DefinitionError`, also for two of one name.

    `environment` and `no_code` as in `load`.
    """
    documents = read_documents(path)
    name, given = default_name(Path(path)), _Given.of(Path(path).parent, environment, no_code)
    if len(documents) < 2:
        return [_service(only(documents, str(path)), name, given)]
    services: dict[str, Service] = {}
    problems = Problems()
    for index, document in enumerate(documents):
        service = problems.tried(partial(_service, document, f"{name}-{index}", given))
        if service is None:
            continue
        if service.name in services:
            problems.add(document.error(("name",), f'two services of the file have the name "{service.name}"'))
        services[service.name] = service
    problems.check()
    return list(services.values())


def loads(
    text: str | bytes,
    base: str | PathLike[str] = ".",
    *,
    environment: Mapping[str, str] | None = None,
    no_code: NoCode | None = None,
) -> Service:
    """The service that a text defines; relative paths in it start at `base`. All else is as in `load`."""
    return _service(only(parse_documents(text), TEXT), "service", _Given.of(Path(base), environment, no_code))


def of_data(data: Mapping[str, Any], file: Path, *, no_code: NoCode | None = None) -> Service:
    """The service that plain data define, without variables in it, as a service file in the folder of `file` would.

    `file` is what errors name; the default of the service's name is made from it. All else is as in `load`.
    """
    given = _Given.of(file.parent, None, no_code)
    service = _validated(_named(Document(dict(data), str(file)), default_name(file)), given, {})
    return service if given.no_code is None else service.without_code(given.no_code)


@dataclass(frozen=True, slots=True)
class _Given:
    """The circumstances in which a definition is read: its folder, the environment, and `--no-code`."""

    base: Path
    environment: Mapping[str, str]
    no_code: NoCode | None
    defaults: Mapping[str, str]
    """The environment in which connectors look for fields that are not given, as for KAFKA_BOOTSTRAP_SERVERS. A file
    cannot choose these variables, and they do not become values of records: also with `no_code` they are not listed."""

    @classmethod
    def of(cls, base: Path, environment: Mapping[str, str] | None, no_code: NoCode | None) -> _Given:
        if no_code is None and not code_allowed():
            no_code = NoCode.of()
        if no_code is not None:
            no_code = replace(no_code, folder=base.absolute())
        # Variables that the caller passes were chosen by the caller: all of them may be used.
        allowed = os.environ if no_code is None else no_code.environment()
        return cls(
            base,
            allowed if environment is None else environment,
            no_code,
            os.environ if environment is None else environment,
        )

    def refused(self, file: Path) -> str | None:
        """Why a file whose content becomes values may not be read; `None` if it may."""
        return None if self.no_code is None else self.no_code.refusal(file)

    def refused_outside(self, file: Path) -> str | None:
        """Why a file with a definition may not be read; `None` if it may."""
        return None if self.no_code is None else self.no_code.refusal_outside(file)


def _service(document: Document, name: str, given: _Given) -> Service:
    try:
        service = _read_service(document, name, given)
        return service if given.no_code is None else service.without_code(given.no_code)
    except DefinitionError as error:
        # The error, and the validation error that caused it, may quote an invalid value that is a secret.
        error.args = tuple(masked(str(text)) for text in error.args)
        error.problems = tuple(masked(problem) for problem in error.problems)
        cause = str(error.__cause__)
        if cause != masked(cause):
            raise error from None
        raise


def _read_service(document: Document, name: str, given: _Given) -> Service:
    if not isinstance(document.data, dict):
        raise document.error((), "a service is a mapping with source, pipeline and sink")
    if "steps" in document.data and "pipeline" not in document.data:
        raise document.error((), "this is a pipeline, not a service: use pipelines.load, or name it in a service file")
    if "@type" in document.data:
        raise document.error((), "this is a single step, not a service: source, pipeline and sink are needed")
    if is_konduit(document.data):
        written = Document({"name": name, **from_konduit(document, given.environment)}, document.file)
        part = document.at("pipeline")
        pipeline = read_pipeline(part, base=given.base.absolute(), refused=given.refused_outside)
        return _validated(written, given, {"pipeline": pipeline})
    return _validated(_named(_interpolated(document, given), name), given, {})


def _interpolated(document: Document, given: _Given) -> Document:
    try:
        data = interpolate(
            document.data,
            base=given.base,
            environment=given.environment,
            untouched=_is_pipeline,
            secret=lambda text: remember([text]),
            refused=given.refused,
        )
    except InterpolationError as error:
        raise DefinitionError(
            *(document.where(failed.path) + str(failed) for failed in (error, *error.others))
        ) from None
    return Document(data, document.file, document.place)


def _is_pipeline(path: KeyPath) -> bool:
    return path == ("pipeline",)


def _named(document: Document, name: str) -> Document:
    # A key without a value is left out: the lines of its section are commented out.
    given = {key: value for key, value in document.data.items() if value is not None}
    return Document({"name": name, **given}, document.file, document.place)


def _validated(document: Document, given: _Given, ready: dict[str, Any]) -> Service:
    """The service of a document. `ready` holds fields that were read before."""
    document = _with_control(document, given)
    problems = Problems()
    fields = dict(ready)
    readers: dict[str, Callable[[], Any]] = {
        "source": lambda: _connectors(SOURCES, document, "source", given),
        "pipeline": lambda: _pipeline(document, given),
        "batch": lambda: _batch(document.at("batch"), given),
        "sink": lambda: _connectors(SINKS, document, "sink", given, fields.get("source")),
        "dead_letter": lambda: _connector(SINKS, document.at("dead_letter"), given, fields.get("source")),
        "variants": lambda: _variants(document, given, fields.get("source")),
    }
    wrong = set()
    for key, reader in readers.items():
        if key not in document.data:
            continue
        value = problems.tried(reader)
        if value is None:
            wrong.add(key)
        else:
            fields[key] = value
    read = {key: value for key, value in {**document.data, **fields}.items() if key not in wrong}
    service = problems.tried(lambda: _of_model(Service, read, document, given, apart=wrong))
    problems.check()
    assert service is not None
    return service.written_in(document)


def _with_control(document: Document, given: _Given) -> Document:
    """The document with the control port of STREAMER_CONTROL, if that is set; all else of `control` is the file's."""
    listen = given.defaults.get(CONTROL_VARIABLE, "")
    control = document.data.get("control") or {}
    if not listen or not isinstance(control, Mapping):
        return document
    try:
        Control(listen=listen)
    except ValidationError as error:
        why = str(error.errors()[0]["msg"]).removeprefix("Value error, ")
        raise DefinitionError(f"environment variable {CONTROL_VARIABLE}: {why}") from None
    data = {**document.data, "control": {**control, "listen": listen}}
    return Document(data, document.file, document.place, document.prefix)


def _of_model(
    model: type[Model], data: object, document: Document, given: _Given, apart: Container[object] = ()
) -> Model:
    context = {"base": given.base.absolute(), "environment": given.defaults}
    try:
        return model.model_validate(data, context=context)
    except ValidationError as error:
        raise definition_error(error, document, model, apart=apart) from error


def _connectors(
    catalog: Catalog[type[Config]],
    document: Document,
    key: str,
    given: _Given,
    sources: Sequence[SourceConfig] | None = None,
) -> list[Config]:
    value = document.data[key]
    if not isinstance(value, list):
        return [_connector(catalog, document.at(key), given, sources)]
    problems = Problems()
    configs = [
        problems.tried(partial(_connector, catalog, document.at(key, index), given, sources))
        for index in range(len(value))
    ]
    problems.check()
    return [config for config in configs if config is not None]


def _variants(document: Document, given: _Given, sources: Sequence[SourceConfig] | None) -> Any:
    """The field `variants` in which sinks are configurations; all else is as it is written."""
    value = document.data["variants"]
    if not isinstance(value, dict):
        return value
    problems, variants = Problems(), dict(value)
    for name, variant in value.items():
        if isinstance(variant, dict) and variant.get("sink") is not None:
            place = document.at("variants", name, "sink")
            sink = problems.tried(partial(_connector, SINKS, place, given, sources, shadow_checks))
            variants[name] = {**variant, "sink": sink}
    problems.check()
    return variants


def _connector(
    catalog: Catalog[type[Config]],
    document: Document,
    given: _Given,
    sources: Sequence[SourceConfig] | None = None,
    checked: Callable[..., Mapping[str, Callable[[], object]]] = checks,
) -> Config:
    problems, base = Problems(), given.base
    config = problems.tried(lambda: _read(catalog, document, given))
    codec = document.data.get("codec") if isinstance(document.data, dict) else None
    if isinstance(codec, dict):
        problems.tried(lambda: _read(CODECS, document.at("codec"), given))
    elif isinstance(codec, str) and config is None:
        # With a configuration, `checks` checks the codec.
        problems.tried(lambda: _checked(document, "codec", lambda: CODECS.get(codec)))
    if isinstance(config, TypedKeys) and config.key_codec is not None:
        problems.tried(lambda: _read(CODECS, document.at("key"), given))
    problems.check()
    assert config is not None
    settings = {field: setting for field, setting in config.codec_settings.items() if isinstance(setting, dict)}
    if settings:
        paths_known = {field: anchored(setting, base.absolute()) for field, setting in settings.items()}
        config = config.model_copy(update=paths_known)
        for key, file in config.file_keys.items():
            # A codec reads its files when it is checked, and its errors quote them: so they are refused before.
            if key.startswith(CODEC_KEYS) and (why := given.refused(file)) is not None:
                problems.add(document.error(tuple(key.split(".")), why))
        problems.check()
    for field, check in checked(config, sources).items():
        problems.tried(partial(_checked, document, field, check))
    problems.check()
    return config


def _checked(document: Document, field: str, check: Callable[[], object]) -> None:
    try:
        check()
    except StreamerError as error:
        raise document.error((field,) if field in document.data else (), str(error)) from error


def _read(catalog: Catalog[type[Registered]], document: Document, given: _Given) -> Registered:
    try:
        model = config_class(catalog, document.data)
    except DefinitionError as error:
        typed = isinstance(document.data, dict) and "type" in document.data
        raise document.error(("type",) if typed else (), str(error)) from None
    return _of_model(model, document.data, document, given)


def _batch(document: Document, given: _Given) -> BatcherSettings:
    try:
        model = settings_class(document.data)
    except DefinitionError as error:
        typed = isinstance(document.data, dict) and "type" in document.data
        raise document.error(("type",) if typed else (), str(error)) from None
    return _of_model(model, document.data, document, given)


def _pipeline(document: Document, given: _Given) -> pipelines.Pipeline:
    value, base = document.data["pipeline"], given.base
    if isinstance(value, str):
        file = base / Path(value).expanduser()
        if (why := given.refused_outside(file)) is not None:
            raise document.error(("pipeline",), why)
        try:
            return pipelines.load(file, refused=given.refused_outside)
        except DefinitionError as error:
            if file.is_file():
                raise
            raise document.error(("pipeline",), str(error)) from None
    part = document.at("pipeline")
    if isinstance(value, list):
        place = None if part.place is None else Lines(part.place.line, {"steps": part.place})
        part = Document({"steps": value}, part.file, place, part.prefix)
    return read_pipeline(part, base=base.absolute(), refused=given.refused_outside)
