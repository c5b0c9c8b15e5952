"""Services that answer requests, made of models and pipelines without a service file: for `streamer serve`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pipelines.definitions.documents import read_documents
from pipelines.errors import DefinitionError
from streamer.definition.konduit import is_konduit
from streamer.definition.loading import load_all, of_data
from streamer.definition.naming import default_name
from streamer.definition.nocode import NoCode
from streamer.definition.service import Service

MODELS: Final[Mapping[str, str]] = {
    ".onnx": "ONNX",
    ".keras": "KERAS",
    ".h5": "KERAS",
    ".engine": "TENSORRT",
    ".plan": "TENSORRT",
}
"""The step that runs a model, by the ending of its file."""
DEFINITIONS: Final = (".yaml", ".yml", ".json")
PIPELINE: Final = ".pipeline"
"""The end of a pipeline file's name before its ending, as in `digits.pipeline.yaml`."""


@dataclass(frozen=True, slots=True)
class Serving:
    """How models are served."""

    source: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the `http` source."""
    service: Mapping[str, Any] = field(default_factory=dict)
    """Other fields of the services."""
    name: str | None = None
    """The name of the only model; by default made from its path."""


def services_of(targets: Sequence[Path], serving: Serving, no_code: NoCode | None = None) -> list[Service]:
    """A service for each model, pipeline file and service file, and for all models and pipelines of a folder.

    Raises `DefinitionError` for a path that is none of these, and for two of one name.
    """
    places = [place for target in targets for place in _places(target)]
    if serving.name is not None and len(places) != 1:
        raise DefinitionError(f"--name is the name of one model, and there are {len(places)}: {_listed(places)}")
    by_name: dict[str, tuple[Path, Service]] = {}
    for place in places:
        for service in _services(place, serving, no_code):
            if service.name in by_name:
                raise DefinitionError(
                    f'{place.file}: {by_name[service.name][0]} has the name "{service.name}" too, and requests name '
                    "their model; rename one of the files"
                )
            by_name[service.name] = (place.file, service)
    return [service for _, service in by_name.values()]


@dataclass(frozen=True, slots=True)
class _Place:
    file: Path
    name: str


def _places(target: Path) -> list[_Place]:
    if target.is_dir():
        return _of_folder(target)
    if not target.is_file():
        raise DefinitionError(f"{target}: no such file or folder")
    return [_Place(target, _name(target))]


def _of_folder(folder: Path) -> list[_Place]:
    """The pipelines and models of a folder; a model in a folder of its own is named after it, `digits/model.onnx`.

    Of the numbered folders of a model, `digits/1/model.onnx`, the last one counts. A pipeline goes before a model of
    its name, which it runs as a rule.
    """
    by_name: dict[str, Path] = {}
    entries = sorted(folder.iterdir())
    for entry in entries:
        if entry.is_dir() and (model := _model_in(entry)) is not None:
            by_name[entry.name] = model
    for file in entries:
        if file.suffix in MODELS and file.is_file():
            by_name[_name(file)] = file
    for file in entries:
        if file.suffix in DEFINITIONS and file.stem.endswith(PIPELINE) and file.is_file():
            by_name[_name(file)] = file
    if not by_name:
        raise DefinitionError(
            f"{folder}: there is no model in it (NAME.onnx, NAME/model.onnx, NAME/1/model.onnx) and no pipeline "
            f"(NAME{PIPELINE}.yaml)"
        )
    return [_Place(file, name) for name, file in sorted(by_name.items())]


def _model_in(folder: Path) -> Path | None:
    versions = sorted((int(path.name), path) for path in folder.iterdir() if path.name.isdecimal() and path.is_dir())
    for place in (*(path for _, path in reversed(versions)), folder):
        models = [path for path in sorted(place.iterdir()) if path.suffix in MODELS and path.is_file()]
        named = [path for path in models if path.stem == "model"] or (models if len(models) == 1 else [])
        if named:
            return named[0]
    return None


def _name(file: Path) -> str:
    if file.stem.endswith(PIPELINE):
        return file.stem.removesuffix(PIPELINE)
    if file.stem == "model":
        return file.absolute().parent.name or file.stem
    return default_name(file)


def _services(place: _Place, serving: Serving, no_code: NoCode | None) -> list[Service]:
    file = place.file
    if file.suffix in MODELS:
        step = {"@type": MODELS[file.suffix], "name": "model", "modelUri": file.name}
        return [_around(place, [step], serving, no_code)]
    if file.suffix not in DEFINITIONS:
        raise DefinitionError(
            f"{file}: no model that can be served by its file alone ({', '.join(MODELS)}), and no pipeline or service "
            "(.yaml, .json); write a pipeline file with the step that runs it"
        )
    data = [document.data for document in read_documents(file)]
    if len(data) == 1 and isinstance(data[0], dict) and "steps" in data[0] and not is_konduit(data[0]):
        return [_around(place, file.name, serving, no_code)]
    return _of_service_file(file, serving, no_code)


def _around(place: _Place, pipeline: object, serving: Serving, no_code: NoCode | None) -> Service:
    fields = {
        "name": serving.name or place.name,
        "source": {"type": "http", **serving.source},
        "pipeline": pipeline,
        # Its codec is the source's; said here, as it is checked before the sink knows its source.
        "sink": {"type": "http", "codec": serving.source.get("codec", "inference")},
        **serving.service,
    }
    return of_data(fields, place.file, no_code=no_code)


def _of_service_file(file: Path, serving: Serving, no_code: NoCode | None) -> list[Service]:
    services = load_all(file, no_code=no_code)
    for service in services:
        if not any(source.type == "http" for source in service.sources):
            raise DefinitionError(
                f"{file}: the service {service.name} has no source of type http, so it answers no requests; add "
                "{type: http} to its source and its sink, or serve its pipeline file alone"
            )
    if serving.source or serving.service or serving.name:
        given = [*serving.source, *serving.service, *(["name"] if serving.name else [])]
        raise DefinitionError(f"{file}: a service file says itself how it is served; write {', '.join(given)} there")
    return services


def _listed(places: Sequence[_Place]) -> str:
    return ", ".join(str(place.file) for place in places[:5]) + (", ..." if len(places) > 5 else "")
