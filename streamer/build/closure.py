"""Which distributions have to be installed together, and in which versions: those that are installed here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution, packages_distributions
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from pipelines.errors import DISTRIBUTION, StreamerError
from pipelines.plugins.requirements import Package, required

if TYPE_CHECKING:
    from packaging.requirements import Requirement


@dataclass(frozen=True, slots=True)
class Pin:
    """A distribution in the version that is installed here."""

    name: str
    version: str
    extras: tuple[str, ...] = ()

    def __str__(self) -> str:
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{self.name}{extras}=={self.version}"


def closure(wanted: Mapping[str, Iterable[str]]) -> list[Pin]:
    """The distributions by name with their extras, and all their dependencies, sorted by name.

    Markers are those of this platform and Python. Raises `MissingPackageError` without the package `packaging`,
    `StreamerError` if something is not installed.
    """
    required(Package("packaging", "build")).check("streamer build")
    extras: dict[str, set[str]] = {}
    names: dict[str, Distribution] = {}
    waiting = [(name, frozenset(given), "") for name, given in wanted.items()]
    while waiting:
        name, given, by = waiting.pop()
        key = _key(name)
        if key in names and given <= extras[key]:
            continue
        installed = _installed(name, by)
        names[key] = installed
        extras.setdefault(key, set()).update(given)
        for requirement in _requirements(installed, extras[key]):
            waiting.append((requirement.name, frozenset(requirement.extras), installed.metadata["Name"]))
    pins = [Pin(installed.metadata["Name"], installed.version, tuple(sorted(extras[key]))) for key, installed in names.items()]
    return sorted(pins, key=lambda pin: (_key(pin.name) != _key(DISTRIBUTION), _key(pin.name)))


def extra_installed(extra: str) -> bool:
    """Whether all packages of one of this distribution's extras are installed."""
    ours = distribution(DISTRIBUTION)
    if extra not in (ours.metadata.get_all("Provides-Extra") or ()):
        return False
    try:
        for requirement in _requirements(ours, {extra}):
            distribution(requirement.name)
    except PackageNotFoundError:
        return False
    return True


def distributions_of(module: str) -> list[str]:
    """The installed distributions that contain this module, `google.protobuf` for example."""
    top = module.partition(".")[0]
    owners = sorted(set(_owners().get(top, ())))
    if len(owners) < 2:
        return owners
    # In a namespace package: the distributions that contain the longest prefix of the module's path.
    parts = module.split(".")
    for length in range(len(parts), 1, -1):
        path = PurePosixPath(*parts[:length])
        if having := [name for name in owners if _has(name, path)]:
            return having
    return owners


@cache
def _owners() -> Mapping[str, list[str]]:
    return packages_distributions()


def _has(name: str, path: PurePosixPath) -> bool:
    files: Iterable[Any] = distribution(name).files or ()
    return any(path in file.parents or file == path.with_suffix(".py") for file in files)


def _requirements(installed: Distribution, extras: Iterable[str]) -> list[Requirement]:
    from packaging.requirements import Requirement

    every = [Requirement(text) for text in installed.requires or ()]
    return [
        requirement
        for requirement in every
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in ("", *extras))
    ]


def _installed(name: str, by: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError:
        needed = f", which {by} needs," if by else ""
        raise StreamerError(
            f"{name}{needed} is not installed here, so its version is not known; install it first"
        ) from None


def _key(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")
