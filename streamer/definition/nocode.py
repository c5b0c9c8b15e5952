"""Untrusted services: `--no-code` refuses all that would use the rights and secrets of the user who runs them.

Steps, sinks and sources declare the keys that hold code (`code_keys`): PYTHON and FUNCTION steps, functions of SWITCH
and COMBINE, Kafka's `oauth_cb`, native libraries; also in pipelines inside a pipeline.
Installed plug-ins are not part of the file, and are allowed.

Options that are passed through to a library (of libav, of encoders, of Kafka's and registries' clients, of onnxruntime)
are refused unless they are known to be harmless (`pipelines.harmless`).

Environment variables and files are refused unless the person who runs the service lists them, since all that a service
reads may leave by its sinks, and a file that it writes may be run by others. Definitions and models in the folder of
the service file need no listing: they come from the same source as the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pipelines.errors import DefinitionError, nearest

VARIABLE: Final = "STREAMER_NO_CODE"
"""Environment variable that refuses code in every service of the process: 1, or 0."""
ENV_VARIABLE: Final = "STREAMER_NO_CODE_ENV"
"""Environment variable that lists variables which services may use all the same, separated by commas."""
FILES_VARIABLE: Final = "STREAMER_NO_CODE_FILES"
"""Environment variable that lists files and folders which services may use, separated as in PATH."""

REFUSED: Final = f"--no-code ({VARIABLE}) refuses code that files hold or name"

CODEC_KEYS: Final = ("codec.", "key.")
"""The prefixes of codecs' keys."""

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
        """Allow these variables and files, and those that the process's environment lists.

        Relative paths are resolved against the current folder.
        """
        more = os.environ.get(ENV_VARIABLE, "").split(",")
        also = os.environ.get(FILES_VARIABLE, "").split(os.pathsep)
        places = (Path(file).expanduser().absolute() for file in (*files, *also) if str(file).strip())
        return cls(frozenset(name.strip() for name in (*env, *more) if name.strip()), tuple(places))

    def with_files(self, *files: Path) -> NoCode:
        """A copy that also allows these files and folders."""
        return replace(self, files=(*self.files, *(file.absolute() for file in files)))

    def environment(self) -> Mapping[str, str]:
        """The process's environment, where reading a variable that is not listed raises `NotListed`."""
        return _Environment(self.env)

    def refusal(self, file: Path) -> str | None:
        """Why this file or folder may not be used; `None` if it may."""
        if any(_is_in(file, place) for place in self.files):
            return None
        return f"{file} is not listed, and --no-code ({VARIABLE}) allows no other file; --files {file} lists it"

    def refusal_outside(self, file: Path) -> str | None:
        """Why this definition or model may not be used; `None` if it is listed, or lies in the service's folder."""
        return None if self.folder is not None and _is_in(file, self.folder) else self.refusal(file)


class NotListed(DefinitionError):
    """A service that may not run code uses an environment variable that is not listed."""


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


def _is_in(file: Path, place: Path) -> bool:
    """Whether `file` is `place` or lies below it, after links are resolved."""
    try:
        return file.expanduser().resolve().is_relative_to(place.resolve())
    except (OSError, RuntimeError, ValueError):
        # Links in a circle, no home, a null byte: such a path cannot be used.
        return False
