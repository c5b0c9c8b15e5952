"""Optional packages that a feature needs: all of several, or any one of them.

    requires = all_of("numpy", any_of(Package("cv2", extra="image"), Package("PIL", extra="pillow")))

Runner factories, forms of values, connectors and codecs declare them. They are looked up by import name, without
importing them.
"""

from __future__ import annotations

import importlib.util
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Final, TypeAlias

from pipelines.errors import DISTRIBUTION, MissingPackageError


class Requirement(ABC):
    """A package, or several in any combination of `all_of` and `any_of`. Immutable."""

    @abstractmethod
    def lacking(self) -> Requirement | None:
        """The part of it that is not installed; `None` if it is met."""

    @abstractmethod
    def met_by(self) -> tuple[Package, ...]:
        """The packages that meet it, of `any_of` the first that does; empty unless it is met."""

    @abstractmethod
    def alternatives(self) -> list[tuple[Package, ...]]:
        """Every set of packages that would meet it."""

    @abstractmethod
    def with_extra(self, extra: str | None) -> Requirement:
        """The same, with `extra` for the packages that name neither an extra nor a distribution."""

    def check(self, purpose: str) -> None:
        """Raise `MissingPackageError` unless it is met."""
        lacking = self.lacking()
        if lacking is not None:
            raise lacking.error(purpose)

    def error(self, purpose: str) -> MissingPackageError:
        """The error for a `purpose` that needs these packages and lacks them; it says how to install them."""
        first = self.alternatives()[0][0]
        return MissingPackageError(first.name, None, purpose, needs=str(self), how=how_to_install(self))


@dataclass(frozen=True, slots=True)
class Package(Requirement):
    """A package that can be imported."""

    name: str
    """Its import name, `cv2`."""
    extra: str | None = None
    """The extra of our own distribution that installs it."""
    distribution: str | None = None
    """The distribution to install where no extra of ours does, `opencv-python-headless`."""

    def lacking(self) -> Requirement | None:
        return None if _installed(self.name) else self

    def met_by(self) -> tuple[Package, ...]:
        return (self,) if _installed(self.name) else ()

    def alternatives(self) -> list[tuple[Package, ...]]:
        return [(self,)]

    def with_extra(self, extra: str | None) -> Requirement:
        return self if self.extra or self.distribution else Package(self.name, extra)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class AllRequired(Requirement):
    """All of these; always met if there are none."""

    parts: tuple[Requirement, ...] = ()

    def lacking(self) -> Requirement | None:
        left = tuple(lacking for part in self.parts if (lacking := part.lacking()) is not None)
        return AllRequired(left) if len(left) > 1 else left[0] if left else None

    def met_by(self) -> tuple[Package, ...]:
        if self.lacking() is not None:
            return ()
        return tuple(dict.fromkeys(package for part in self.parts for package in part.met_by()))

    def alternatives(self) -> list[tuple[Package, ...]]:
        sets = product(*(part.alternatives() for part in self.parts))
        return [tuple(dict.fromkeys(package for packages in choice for package in packages)) for choice in sets]

    def with_extra(self, extra: str | None) -> Requirement:
        return AllRequired(tuple(part.with_extra(extra) for part in self.parts))

    def __str__(self) -> str:
        return " and ".join(f"({part})" if isinstance(part, AnyRequired) else str(part) for part in self.parts)


@dataclass(frozen=True, slots=True)
class AnyRequired(Requirement):
    """One of these, the first that is there."""

    parts: tuple[Requirement, ...]

    def lacking(self) -> Requirement | None:
        left = [part.lacking() for part in self.parts]
        return None if None in left else AnyRequired(tuple(lacking for lacking in left if lacking is not None))

    def met_by(self) -> tuple[Package, ...]:
        return next((part.met_by() for part in self.parts if part.lacking() is None), ())

    def alternatives(self) -> list[tuple[Package, ...]]:
        return [packages for part in self.parts for packages in part.alternatives()]

    def with_extra(self, extra: str | None) -> Requirement:
        return AnyRequired(tuple(part.with_extra(extra) for part in self.parts))

    def __str__(self) -> str:
        return " or ".join(f"({part})" if isinstance(part, AllRequired) else str(part) for part in self.parts)


Requires: TypeAlias = str | Requirement | Iterable[str | Requirement]
"""How requirements may be declared: an import name, a `Requirement`, or several of them that are all needed."""

NOTHING: Final[Requirement] = AllRequired()
"""The requirement of a feature that needs no package."""


def all_of(*parts: str | Requirement, extra: str | None = None) -> Requirement:
    """All of these; a text is an import name of a package that `extra` of our distribution installs."""
    return AllRequired(tuple(_part(part) for part in parts)).with_extra(extra)


def any_of(*parts: str | Requirement, extra: str | None = None) -> Requirement:
    """One of these at least, the first that is there being used. `ValueError` for none; otherwise as `all_of`."""
    if not parts:
        raise ValueError("any_of needs a package at least")
    return AnyRequired(tuple(_part(part) for part in parts)).with_extra(extra)


def required(declared: Requires, extra: str | None = None) -> Requirement:
    """The declared packages as a requirement; a tuple of names means all of them. `extra` as for `all_of`."""
    if isinstance(declared, (str, Requirement)):
        return _part(declared).with_extra(extra)
    return all_of(*declared, extra=extra)


def how_to_install(lacking: Requirement) -> str | None:
    """`pip install ...`, several joined by `or`; `None` if no extra or distribution of the packages is known."""
    ways = list(dict.fromkeys(_way(packages) for packages in lacking.alternatives()))
    return " or ".join(way for way in ways if way is not None) or None


def _way(packages: tuple[Package, ...]) -> str | None:
    if any(not (package.extra or package.distribution) for package in packages):
        return None
    extras = sorted({package.extra for package in packages if package.extra})
    wanted = [f"'{DISTRIBUTION}[{','.join(extras)}]'"] if extras else []
    wanted += sorted({package.distribution or "" for package in packages if not package.extra})
    return f"pip install {' '.join(wanted)}"


def _part(part: str | Requirement) -> Requirement:
    return Package(part) if isinstance(part, str) else part


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False
    except ValueError:
        # It is imported, and has replaced itself by an object without a spec, as Faust does.
        return sys.modules.get(name) is not None
