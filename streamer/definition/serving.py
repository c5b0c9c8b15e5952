"""Services that answer requests, made of models and pipelines without a service file: for `streamer serve`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pipelines.definitions.documents import read_documents
from pipelines.errors import DefinitionError
from pipelines.plugins.versionfolders import model_in, versions_in
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
SERVICE: Final = "service"
"""The name, before its ending, of a service file that makes a folder a model."""
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
    places = [place for target in targets for place in places_in(target)]
    if serving.name is not None and len(places) != 1:
        raise DefinitionError(f"--name is the name of one model, and there are {len(places)}: {_listed(places)}")
    by_name: dict[str, tuple[Path, Service]] = {}
    for place in places:
        for service in services_at(place, serving, no_code):
            if service.name in by_name:
                raise DefinitionError(
                    f'{place.file}: {by_name[service.name][0]} has the name "{service.name}" too, and requests name '
                    "their model; rename one of the files"
                )
            by_name[service.name] = (place.file, service)
    return [service for _, service in by_name.values()]


@dataclass(frozen=True, slots=True)
class Place:
    """A model, pipeline file or service file."""

    file: Path
    """Of version folders the folder that holds them."""
    name: str
    step: str = ""
    """The step that runs it, if it is a model."""


def places_in(target: Path) -> list[Place]:
    """What is to be served of a path, by name. Raises `DefinitionError` where there is nothing."""
    if target.is_dir():
        if not (places := places_of(target)):
            raise DefinitionError(nothing_in(target))
        return [*places.values()]
    if not target.is_file():
        raise DefinitionError(f"{target}: no such file or folder")
    return [Place(target, _name(target), MODELS.get(target.suffix, ""))]


def nothing_in(folder: Path) -> str:
    """The text of the error that there is no model in a folder."""
    return (
        f"{folder}: there is no model in it (NAME.onnx, NAME/model.onnx, NAME/1/model.onnx), no pipeline "
        f"(NAME{PIPELINE}.yaml) and no service (NAME/{SERVICE}.yaml)"
    )


def places_of(folder: Path) -> dict[str, Place]:
    """The services, pipelines and models of a folder, by name; empty if there is none. Hidden ones do not count.

    One in a folder of its own is named after that: `digits/service.yaml`, `digits/model.onnx`, `digits/1/model.onnx`,
    of which the highest number is used. A pipeline goes before a model of its name, which it runs as a rule. Raises
    `OSError` where the folder cannot be read.
    """
    places: dict[str, Place] = {}
    entries = [entry for entry in sorted(folder.iterdir()) if not entry.name.startswith(".")]
    for entry in entries:
        if entry.is_dir() and (place := _place_in(entry)) is not None:
            places[entry.name] = place
    for file in entries:
        if file.suffix in MODELS and file.is_file():
            places[_name(file)] = Place(file, _name(file), MODELS[file.suffix])
    for file in entries:
        if file.suffix in DEFINITIONS and file.stem.endswith(PIPELINE) and file.is_file():
            places[_name(file)] = Place(file, _name(file))
    return dict(sorted(places.items()))


def _place_in(folder: Path) -> Place | None:
    try:
        for ending in DEFINITIONS:
            if (file := folder / f"{SERVICE}{ending}").is_file():
                return Place(file, folder.name)
        for number in versions_in(folder):
            model = model_in(folder / str(number), folder=True)
            if model is not None and (step := _step_for(model)):
                return Place(folder, folder.name, step)
        models = [path for path in sorted(folder.iterdir()) if path.suffix in MODELS and path.is_file()]
    except OSError:
        # Gone meanwhile, or not to be read by us: it is no model.
        return None
    named = [path for path in models if path.stem == "model"] or (models if len(models) == 1 else [])
    return Place(named[0], folder.name, MODELS[named[0].suffix]) if named else None


def _step_for(model: Path) -> str:
    """The step that runs a model; empty: none does."""
    return "TENSORFLOW" if model.is_dir() else MODELS.get(model.suffix, "")


def _name(file: Path) -> str:
    if file.stem.endswith(PIPELINE):
        return file.stem.removesuffix(PIPELINE)
    if file.stem == "model":
        return file.absolute().parent.name or file.stem
    return default_name(file)


def services_at(place: Place, serving: Serving, no_code: NoCode | None = None) -> list[Service]:
    """The services of a place. Raises `DefinitionError` for files that are wrong."""
    file = place.file
    if place.step:
        step = {"@type": place.step, "name": "model", "modelUri": file.name}
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


def _around(place: Place, pipeline: object, serving: Serving, no_code: NoCode | None) -> Service:
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


def _listed(places: Sequence[Place]) -> str:
    return ", ".join(str(place.file) for place in places[:5]) + (", ..." if len(places) > 5 else "")
