"""Untrusted services: `--no-code` refuses all that would use the rights and secrets of the user who runs them.

Steps, sinks and sources declare the keys that hold code (`code_keys`): PYTHON and FUNCTION steps, functions of SWITCH
and COMBINE, `when: module:function`, Kafka's `oauth_cb`, native libraries; also in pipelines inside a pipeline.
Installed plug-ins are not part of the file, and are allowed.

Options that are passed through to a library (of libav, of encoders, of Kafka's and registries' clients, of onnxruntime)
are refused unless they are known to be harmless (`pipelines.harmless`).

Environment variables and files are refused unless the person who runs the service lists them, since all that a service
reads may leave by its sinks, and a file that it writes may be run by others. Definitions and models in the folder of
the service file need no listing: they come from the same source as the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipelines.definitions.documents import Document, KeyPath, Place
from pipelines.definitions.walk import Part, walk
from pipelines.errors import DefinitionError, nearest
from pipelines.plugins.modelfiles import is_remote
from pipelines.runners.runner import OpenContext

if TYPE_CHECKING:
    from connectors.config import ConnectorConfig
    from streamer.definition.service import Service

VARIABLE: Final = "STREAMER_NO_CODE"
"""Environment variable that refuses code in every service of the process: 1, or 0."""
ENV_VARIABLE: Final = "STREAMER_NO_CODE_ENV"
"""Environment variable that lists variables which services may use all the same, separated by commas."""
FILES_VARIABLE: Final = "STREAMER_NO_CODE_FILES"
"""Environment variable that lists files and folders which services may use, separated as in PATH."""

REFUSED: Final = f"--no-code ({VARIABLE}) refuses code that files hold or name"

_REMOVE: Final = (
    f"--no-code ({VARIABLE}) therefore refuses it; remove it, or run without --no-code if you trust who wrote it"
)
CODEC: Final = "codec."
"""What the keys of a codec begin with."""

_OFF: Final = ("", "0", "false", "no", "off")


def code_allowed(environment: Mapping[str, str] | None = None) -> bool:
    """Whether the environment (by default the process's) lets services run code.

    Anything but 0, no, false or off in `STREAMER_NO_CODE` forbids it.
    """
    return (os.environ if environment is None else environment).get(VARIABLE, "").strip().lower() in _OFF


@dataclass(frozen=True, slots=True)
class NoCode:
    """The setting that a service runs no code, with the variables and files that it may use all the same."""

    env: frozenset[str] = frozenset()
    """Names of environment variables that `${NAME}` may stand for."""
    files: tuple[Path, ...] = ()
    """Files and folders, with all that is in them, that it may read and write."""
    folder: Path | None = None
    """The folder of its file, once that is read: definitions and models that lie there need no listing."""

    @classmethod
    def of(cls, env: Iterable[str] = (), files: Iterable[str | Path] = ()) -> NoCode:
        """With these, and with those that the environment of the process lists. Relative paths start here and now."""
        more = os.environ.get(ENV_VARIABLE, "").split(",")
        also = os.environ.get(FILES_VARIABLE, "").split(os.pathsep)
        places = (Path(one).expanduser().absolute() for one in (*files, *also) if str(one).strip())
        return cls(frozenset(name.strip() for name in (*env, *more) if name.strip()), tuple(places))

    def with_files(self, *files: Path) -> NoCode:
        """The same, and these files and folders."""
        return replace(self, files=(*self.files, *(file.absolute() for file in files)))

    def environment(self) -> Mapping[str, str]:
        """The process's environment; to read a variable that is not listed raises `NotListed`."""
        return _Environment(self.env)

    def refusal(self, file: Path) -> str | None:
        """Why this file or folder may not be used; `None` if it may."""
        if any(_is_in(file, place) for place in self.files):
            return None
        return f"{file} is not listed, and --no-code ({VARIABLE}) allows no other file; --files {file} lists it"

    def refusal_outside(self, file: Path) -> str | None:
        """The same for a definition or a model, which may also lie in the folder of the service's file."""
        return None if self.folder is not None and _is_in(file, self.folder) else self.refusal(file)


class NotListed(DefinitionError):
    """A service that may run no code uses an environment variable that is not listed."""


@dataclass(frozen=True, slots=True)
class _Environment(Mapping[str, str]):
    """The process's variables, of which listed ones may be read. Variables that are not set get their defaults."""

    listed: frozenset[str]

    def __getitem__(self, name: str) -> str:
        value = os.environ[name]
        if name not in self.listed:
            raise NotListed(
                f"the environment variable {name} is not listed, and --no-code ({VARIABLE}) allows no other; "
                f"--env {name} lists it{nearest(name, self.listed)}"
            )
        return value

    def __contains__(self, name: object) -> bool:
        return name in os.environ

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.listed if name in os.environ)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a part of a service is refused."""

    part: str
    """`step 0:PYTHON`, `sink kafka`, `profile`."""
    why: str
    """It begins with the key."""
    where: str = ""
    """File and line, `theirs.yaml:12: `, as far as known."""


def refused(service: Service, *, connected: bool = True) -> list[Refusal]:
    """Why parts of the service are refused; empty if none are, or the service may run code.

    Files and options of sources and sinks do not count unless they are to be `connected`, but for those of codecs.
    Raises `DefinitionError` for a pipeline in a file that is refused, or wrong.
    """
    no_code = service.no_code
    if no_code is None:
        return []
    pipeline = service.sequence()
    # Of a service that was read before, or made in Python, only the pipeline's folder is known.
    no_code = no_code if no_code.folder else replace(no_code, folder=pipeline.base or Path.cwd())
    written = service.written
    found = []
    if pipeline.base is not None and (why := no_code.refusal_outside(pipeline.base)):
        found.append(Refusal("pipeline", why, _place(written, "pipeline")))
    for part in walk(pipeline, refused=no_code.refusal_outside):
        where = _place(written, "pipeline", part.name)
        found += [Refusal(f"step {part.name}", why, where) for why in _of_step(part, no_code)]
    for one in _connectors(service):
        for key, why in _of_connector(one.config, no_code, connected=connected).items():
            found.append(Refusal(one.part, f"{key}{why}", _place(written, *one.path, key)))
    if service.profile is not None and (why := no_code.refusal(service.profile.file)):
        found.append(Refusal("profile", f"file: {why}", _place(written, "profile", "file")))
    return found


def check_code(service: Service, *, connected: bool = True) -> None:
    """Raise `DefinitionError`, naming part and key, if a part of the service is refused (`refused`)."""
    found = [
        f"{one.where}service {service.name}: {one.part}: {one.why}" for one in refused(service, connected=connected)
    ]
    if found:
        raise DefinitionError(*found)


@dataclass(frozen=True, slots=True)
class _Connector:
    part: str
    config: ConnectorConfig
    path: KeyPath
    """Its path in the service file."""


def _connectors(service: Service) -> Iterator[_Connector]:
    for kind, configs in (("source", service.sources), ("sink", service.sinks)):
        for index, config in enumerate(configs):
            yield _Connector(f"{kind} {config.label}", config, (kind, index))
    if service.dead_letter is not None:
        yield _Connector(f"sink {service.dead_letter.label}", service.dead_letter, ("dead_letter",))


def _of_step(part: Part, no_code: NoCode) -> Iterator[str]:
    """Its models and definitions may lie in the service's folder; files that it reads values from have to be listed."""
    if part.what.code_keys:
        yield f"{', '.join(part.what.code_keys)} runs code, and {REFUSED}; remove it or its step"
    yield from (f"{key} {why}; {_REMOVE}" for key, why in part.what.option_keys.items())
    context = OpenContext(base=part.base)
    taken = part.what.data_files
    inner = [getattr(part.what, name) for name, kind in part.what.parts.items() if kind == "pipeline"]
    made_of = [*part.what.files, *(one for one in inner if isinstance(one, str))]
    whys = [no_code.refusal_outside(context.path(one)) for one in made_of if one not in taken and not is_remote(one)]
    whys += [no_code.refusal(context.path(one)) for one in taken]
    yield from filter(None, whys)


def _of_connector(config: ConnectorConfig, no_code: NoCode, *, connected: bool) -> dict[str, str]:
    """Why its keys are refused, with what stands between key and reason; of several reasons for a key the first."""
    found = dict.fromkeys(config.code_keys, f" runs code, and {REFUSED}; remove it")
    if connected:
        for key in config.identity_keys:
            found.setdefault(key, f" logs in as this machine, and --no-code ({VARIABLE}) refuses that; remove it")
    for key, file in config.file_keys.items():
        if (connected or key.startswith(CODEC)) and (why := no_code.refusal(file)):
            found.setdefault(key, f": {why}")
    for key, why in config.option_keys.items():
        if connected or key.startswith(CODEC):
            found.setdefault(key, f" {why}; {_REMOVE}")
    return found


def _place(written: Document | None, *parts: str | int) -> str:
    """File and line of a part of the service file.

    A part may be a key, a position, several keys joined by dots, or the name of a step. Where it is not in the file,
    the nearest part around it counts.
    """
    if written is None:
        return ""
    path: KeyPath = ()
    place = written.place
    for part in parts:
        below, place = _found(place, part)
        path = (*path, *below)
    line = written.line(path)
    return "" if written.file is None or line is None else f"{written.file}:{line}: "


def _found(place: Place | None, part: str | int) -> tuple[KeyPath, Place | None]:
    if place is None:
        return (), None
    if part in place.inside:
        return (part,), place.inside[part]
    if isinstance(part, str):
        for key, inner in place.inside.items():
            if part.startswith(f"{key}."):
                below, last = _found(inner, part.removeprefix(f"{key}."))
                return (key, *below), last
        step = re.match(r"\d+", part)
        steps = place.inside.get("steps")
        inside, before = (place, ()) if steps is None else (steps, ("steps",))
        if step is not None and int(step[0]) in inside.inside:
            return (*before, int(step[0])), inside.inside[int(step[0])]
        if steps is not None and part in steps.inside:
            return ("steps", part), steps.inside[part]
    # A single source stands there without a list around it.
    return (), place


def _is_in(file: Path, place: Path) -> bool:
    """Whether it is this place or below it, wherever links lead."""
    try:
        return file.expanduser().resolve().is_relative_to(place.resolve())
    except (OSError, RuntimeError, ValueError):
        # Links in a circle, no home, a null byte: such a path cannot be used.
        return False
