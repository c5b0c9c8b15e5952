"""The parts of a service that are refused where it may run no code (`streamer.definition.nocode`)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from connectors.config import ConnectorConfig
from pipelines.definitions.document import Document, KeyPath, Lines
from pipelines.definitions.walk import Part, walk
from pipelines.errors import DefinitionError
from pipelines.executors.errorclasses import needs_import
from pipelines.plugins.modelfiles import is_remote, shortened, uses_identity
from pipelines.runners.runner import OpenContext
from streamer.definition.connectors.listed import connectors_of
from streamer.definition.nocode import CODEC_KEYS, REFUSED, VARIABLE, NoCode
from streamer.definition.service import Service
from streamer.definition.settings import StateSettings

_REMOVE: Final = (
    f"--no-code ({VARIABLE}) therefore refuses it; remove it, or run without --no-code if you trust who wrote it"
)
_NO_IDENTITY: Final = f"--no-code ({VARIABLE}) refuses that; remove it"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a part of a service is refused."""

    part: str
    """`step 0:PYTHON`, `sink kafka`, `profile`."""
    why: str
    """The reason, which begins with the key."""
    where: str = ""
    """File and line, `theirs.yaml:12: `, as far as known."""


def refused(service: Service, *, connected: bool = True) -> list[Refusal]:
    """Why parts of the service are refused; empty if none are, or the service may run code.

    Files and options of sources and sinks do not count unless they are to be `connected`; those of codecs always do.
    Raises `DefinitionError` for a pipeline in a file that is refused or invalid.
    """
    no_code = service.no_code
    if no_code is None:
        return []
    pipeline = service.sequence()
    # A service that was loaded with code allowed, or made in Python, knows only its pipeline's folder.
    no_code = no_code if no_code.folder else replace(no_code, folder=pipeline.base or Path.cwd())
    written = service.written
    refusals = []
    if pipeline.base is not None and (why := no_code.refusal_outside(pipeline.base)):
        refusals.append(Refusal("pipeline", why, place_of(written, "pipeline")))
    different = [name for name, variant in service.variants.items() if variant.set]
    for each in [pipeline, *(service.pipeline_of(name) for name in different)]:
        for part in walk(each, refused=no_code.refusal_outside):
            where = place_of(written, "pipeline", part.name)
            refusals += [Refusal(f"step {part.name}", why, where) for why in _of_step(part, no_code)]
    for connector in connectors_of(service):
        for key, why in _of_connector(connector.config, no_code, connected=connected).items():
            refusals.append(Refusal(connector.part, f"{key}{why}", place_of(written, *connector.path, key)))
    for name, settings in service.steps.items():
        for error in filter(needs_import, settings.retry.on if settings.retry else ()):
            where = place_of(written, "steps", name, "retry", "on")
            why = f"retry.on: {error} has to be imported, and {REFUSED}; remove it"
            refusals.append(Refusal(f"steps {name}", why, where))
    if isinstance(service.state, StateSettings) and (why := no_code.refusal(service.state.path)):
        refusals.append(Refusal("state", f"path: {why}", place_of(written, "state", "path")))
    if service.profile is not None and (why := no_code.refusal(service.profile.file)):
        refusals.append(Refusal("profile", f"file: {why}", place_of(written, "profile", "file")))
    return refusals


def check_code(service: Service, *, connected: bool = True) -> None:
    """Raise `DefinitionError`, naming part and key, if a part of the service is refused (`refused`)."""
    errors = [
        f"{refusal.where}service {service.name}: {refusal.part}: {refusal.why}"
        for refusal in refused(service, connected=connected)
    ]
    if errors:
        raise DefinitionError(*errors)


def _of_step(part: Part, no_code: NoCode) -> Iterator[str]:
    """Why a step is refused. Models and definitions may lie in the service's folder; data files have to be listed."""
    if part.what.code_keys:
        yield f"{', '.join(part.what.code_keys)} runs code, and {REFUSED}; remove it or its step"
    yield from (f"{key} {why}; {_REMOVE}" for key, why in part.what.option_keys.items())
    for name in filter(uses_identity, part.what.files):
        yield f"the model {shortened(name)} is fetched with this machine's credentials, and {_NO_IDENTITY}"
    context = OpenContext(base=part.base)
    data_files = part.what.data_files
    inner = [getattr(part.what, name) for name, kind in part.what.parts.items() if kind == "pipeline"]
    made_of = [*part.what.files, *(name for name in inner if isinstance(name, str))]
    whys = [
        no_code.refusal_outside(context.path(name))
        for name in made_of
        if name not in data_files and not is_remote(name)
    ]
    whys += [no_code.refusal(context.path(name)) for name in data_files]
    yield from filter(None, whys)


def _of_connector(config: ConnectorConfig, no_code: NoCode, *, connected: bool) -> dict[str, str]:
    """By key the first reason why it is refused, with the text that joins key and reason."""
    reasons = dict.fromkeys(config.code_keys, f" runs code, and {REFUSED}; remove it")
    if connected:
        for key in config.identity_keys:
            reasons.setdefault(key, f" logs in as this machine, and {_NO_IDENTITY}")
    for key, file in config.file_keys.items():
        if (connected or key.startswith(CODEC_KEYS)) and (why := no_code.refusal(file)):
            reasons.setdefault(key, f": {why}")
    for key, why in config.option_keys.items():
        if connected or key.startswith(CODEC_KEYS):
            reasons.setdefault(key, f" {why}; {_REMOVE}")
    return reasons


def place_of(written: Document | None, *parts: str | int) -> str:
    """File and line of a part of the service file, `service.yaml:12: `; empty if it was not written in one.

    A part may be a key, a position, several keys joined by dots, or the name of a step. Where it is not in the file,
    the nearest part around it counts.
    """
    if written is None:
        return ""
    path: KeyPath = ()
    place = written.place
    for part in parts:
        below, place = _step_into(place, part)
        path = (*path, *below)
    line = written.line(path)
    return "" if written.file is None or line is None else f"{written.file}:{line}: "


def _step_into(place: Lines | None, part: str | int) -> tuple[KeyPath, Lines | None]:
    """The path from `place` to this part of it, and the part's place; the empty path if there is no such part."""
    if place is None:
        return (), None
    if part in place.inside:
        return (part,), place.inside[part]
    if isinstance(part, str):
        for key, inner in place.inside.items():
            if part.startswith(f"{key}."):
                below, last = _step_into(inner, part.removeprefix(f"{key}."))
                return (key, *below), last
        step = re.match(r"\d+", part)
        steps = place.inside.get("steps")
        inside, before = (place, ()) if steps is None else (steps, ("steps",))
        if step is not None and int(step[0]) in inside.inside:
            return (*before, int(step[0])), inside.inside[int(step[0])]
        if steps is not None and part in steps.inside:
            return ("steps", part), steps.inside[part]
    # A single source or sink is not in a list.
    return (), place
