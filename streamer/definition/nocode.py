"""Untrusted services: `--no-code` refuses all that would use the rights and secrets of the user who runs them.

Steps, sinks and sources declare the keys that hold code (`code_keys`): PYTHON and FUNCTION steps, functions of SWITCH
and COMBINE, `when: module:function`, Kafka's `oauth_cb`, native libraries; also in pipelines inside a pipeline.
Installed plug-ins are not part of the file, and are allowed.

Environment variables and files are refused unless the person who runs the service lists them, since all that a service
reads may leave by its sinks, and a file that it writes may be run by others. Definitions and models in the folder of
the service file need no listing: they come from the same source as the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

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

_OFF: Final = ("", "0", "false", "no", "off")


def code_allowed(environment: Mapping[str, str] | None = None) -> bool:
    """Whether the environment (by default the process's) lets services run code. Anything but 0, no, false or off in
    `STREAMER_NO_CODE` says no."""
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


def code_in(service: Service) -> list[tuple[str, str]]:
    """The parts of the service that run code (`step 0:PYTHON`, `sink kafka`), each with the keys that hold it.

    Raises `DefinitionError` for a pipeline's file that is wrong.
    """
    found = [(f"step {part.name}", part.what.code_keys) for part in walk(service.sequence())]
    found += [(name, config.code_keys) for name, config in _connectors(service)]
    return [(part, ", ".join(keys)) for part, keys in found if keys]


def refused(service: Service, *, connected: bool = True) -> list[Refusal]:
    """Why parts of the service are refused; empty if none are, or the service may run code.

    Files of sources and sinks do not count unless they are to be `connected`.
    """
    no_code = service.no_code
    if no_code is None:
        return []
    found = [
        Refusal(part, f"{keys} runs code, and {REFUSED}; remove it or its step") for part, keys in code_in(service)
    ]
    pipeline = service.sequence()
    # Of a service that was read before, or made in Python, only the pipeline's folder is known.
    folder = no_code.folder or pipeline.base or Path.cwd()
    if pipeline.base is not None and (why := _outside(pipeline.base, folder, no_code)):
        found.append(Refusal("pipeline", why))
    for one in walk(pipeline):
        found += [Refusal(f"step {one.name}", why) for why in _of_step(one, folder, no_code)]
    for name, config in _connectors(service) if connected else ():
        found += [Refusal(name, why) for why in _of_connector(config, no_code)]
    if service.profile is not None and (why := no_code.refusal(service.profile.file)):
        found.append(Refusal("profile", f"file: {why}"))
    return found


def check_code(service: Service, *, connected: bool = True) -> None:
    """Raise `DefinitionError`, naming part and key, if a part of the service is refused (`refused`)."""
    found = [f"service {service.name}: {one.part}: {one.why}" for one in refused(service, connected=connected)]
    if found:
        raise DefinitionError(*found)


def _connectors(service: Service) -> Iterator[tuple[str, ConnectorConfig]]:
    for source in service.sources:
        yield f"source {source.label}", source
    for sink in service.sinks:
        yield f"sink {sink.label}", sink
    if service.dead_letter is not None:
        yield f"sink {service.dead_letter.label}", service.dead_letter


def _of_step(part: Part, folder: Path, no_code: NoCode) -> Iterator[str]:
    """Its models and definitions may lie in the service's folder; files that it reads values from have to be listed."""
    context = OpenContext(base=part.base)
    taken = part.what.data_files
    inner = [getattr(part.what, name) for name, kind in part.what.parts.items() if kind == "pipeline"]
    made_of = [*part.what.files, *(one for one in inner if isinstance(one, str))]
    whys = [_outside(context.path(one), folder, no_code) for one in made_of if one not in taken and not is_remote(one)]
    whys += [no_code.refusal(context.path(one)) for one in taken]
    yield from filter(None, whys)


def _outside(file: Path, folder: Path, no_code: NoCode) -> str | None:
    return None if _is_in(file, folder) else no_code.refusal(file)


def _of_connector(config: ConnectorConfig, no_code: NoCode) -> Iterator[str]:
    for key in config.identity_keys:
        yield f"{key} logs in as this machine, and --no-code ({VARIABLE}) refuses that; remove it"
    for key, file in config.file_keys.items():
        if why := no_code.refusal(file):
            yield f"{key}: {why}"


def _is_in(file: Path, place: Path) -> bool:
    """Whether it is this place or below it, wherever links lead."""
    try:
        return file.expanduser().resolve().is_relative_to(place.resolve())
    except (OSError, RuntimeError, ValueError):
        # Links in a circle, no home, a null byte: such a path cannot be used.
        return False
