"""`Catalog`: the parts of one kind by name, such as all sources or all codecs: ours, and those of plug-ins.

Ours are found by looking through a package, so that a part is added by writing its module. Those of plug-ins are named
by entry points of installed distributions.
"""

from __future__ import annotations

import importlib
import logging
import os
import pkgutil
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from threading import RLock
from typing import Any, Generic, TypeVar

from pipelines.errors import DISTRIBUTION, RAISED, DefinitionError, MissingPackageError, StreamerError, nearest

OURS = "streamer"
"""The distribution of built-in parts, in listings and messages."""

Part = TypeVar("Part")

_log = logging.getLogger(__name__)


class RegistryError(StreamerError):
    """A step, runner or the like that is not registered, cannot run here, or exists twice."""


class NameClash(RegistryError, DefinitionError):
    """Two distributions have parts of the same kind and name."""


@dataclass(frozen=True, slots=True)
class Registered(Generic[Part]):
    """A part that can be used by its name."""

    name: str
    target: str
    """Its class or object in messages: `module:object`."""
    distribution: str
    """The distribution that it comes from; `streamer` for ours."""
    part: Part | None = None
    """The part; `None`: it is imported when it is used."""


class Catalog(Generic[Part]):
    """The parts of one kind by name. Parts of plug-ins are looked for when the catalog is first used.

    Args:
        kind: The kind in messages: "source", "step type".
        group: The group of entry points that plug-ins use: "streamer.sources".
        checked: Returns the object as a part of this kind, or raises `TypeError` if it is not one.
        names: The names of a part.
        package: The package that holds our parts; empty for none.
        holds: Whether the module of this name in the package may hold parts of this kind.
        by_entry: Whether a part of a plug-in has the name of its entry point, and so is imported only when it is used.
            One that cannot be imported is then an error of its use. Otherwise all are imported at once, and those that
            cannot be are left out, with a warning and a line in `problems`.
        plugins: Whether there are parts of plug-ins.
    """

    def __init__(
        self,
        kind: str,
        group: str,
        checked: Callable[[object], Part],
        names: Callable[[Part], Iterable[str]],
        package: str = "",
        holds: Callable[[str], bool] = bool,
        *,
        by_entry: bool = False,
        plugins: bool = True,
    ) -> None:
        self.kind = kind
        self.group = group
        self._checked = checked
        self._names = names
        self._package = package
        self._holds = holds
        self._by_entry = by_entry
        self._plugins = plugins
        self._known: dict[str, list[Registered[Part]]] = {}
        self._ours: set[str] = set()
        self._broken: list[str] = []
        self._modules: list[str] | None = None
        # A service's threads may ask for codecs at the same time.
        self._lock = RLock()

    @property
    def known(self) -> Mapping[str, Registered[Part]]:
        """All parts by name; of two with one name the first. All modules of ours are imported."""
        self._look(None)
        return {name: registered[0] for name, registered in self._known.items()}

    @property
    def clashes(self) -> frozenset[str]:
        """Names that two parts have."""
        self._look(None)
        return frozenset(name for name, registered in self._known.items() if len(registered) > 1)

    @property
    def problems(self) -> list[str]:
        """What is wrong with the parts that were looked at, one line each.

        These are plug-ins that cannot be imported, and names that exist twice.
        """
        clashes = (self._clash(name) for name, registered in self._known.items() if len(registered) > 1)
        return [*self._broken, *clashes]

    def add(self, part: Part, distribution: str = OURS) -> None:
        """Add a part. One that is there already is ignored; another one of the same name makes each use a clash."""
        with self._lock:
            for name in self._names(part):
                self._put(Registered(name, _target(part), distribution, part))

    def built_in(self, name: str) -> Part | None:
        """Our part of this name, `None` if we have none."""
        self._look(name)
        return self._known[name][0].part if name in self._ours else None

    def registered(self) -> list[Registered[Part]]:
        """All parts, those that exist twice among them."""
        self._look(None)
        return [part for known in self._known.values() for part in known]

    def find(self, name: str) -> Registered[Part] | None:
        """The part of this name, `None` if there is none. Raises `NameClash` if there are two."""
        self._look(name)
        registered = self._known.get(name)
        if registered is None:
            return None
        if len(registered) > 1:
            raise NameClash(self._clash(name))
        return registered[0]

    def get(self, name: str) -> Part:
        """The part of this name.

        Raises:
            NameClash: Two distributions have a part of this name.
            DefinitionError: There is none of this name, or its plug-in is broken.
            MissingPackageError: Its plug-in says that a package is missing.
        """
        registered = self.find(name)
        if registered is None:
            raise DefinitionError(
                f'there is no {self.kind} of type "{name}"{nearest(name, self.known)}; known are '
                f"{', '.join(sorted(self.known))}"
            )
        return registered.part if registered.part is not None else self._load(registered)

    def load_all(self) -> dict[str, Part]:
        """Every part that can be used; broken ones and those that exist twice are logged and left out."""
        loaded = {}
        for name in sorted(self.known):
            try:
                loaded[name] = self.get(name)
            except (DefinitionError, MissingPackageError) as error:
                _log.warning("left out: %s", error)
        return loaded

    def distribution(self, part: Part) -> str:
        """The distribution that a part comes from. Raises `KeyError` if it is not known."""
        for name in self._names(part):
            self._look(name)
            for registered in self._known.get(name, ()):
                if registered.part is part:
                    return registered.distribution
        raise KeyError(part)

    def _look(self, name: str | None) -> None:
        """Look for the parts of this name, or for all."""
        with self._lock:
            if self._plugins:
                self._plugins = False
                self._add_plugins()
            if self._modules is None:
                self._modules = [module for module in modules_of(self._package) if self._holds(module)]
            if name is not None:
                self._modules.sort(key=lambda module: _likeness(name, module), reverse=True)
            while self._modules and name not in self._ours:
                self._add_ours(self._modules.pop(0))

    def _add_ours(self, module: str) -> None:
        for value in vars(importlib.import_module(module)).values():
            # A module holds what it defines, not what it imports.
            if getattr(value, "__module__", None) == module:
                try:
                    part = self._checked(value)
                except TypeError:
                    continue
                self._ours.update(self._names(part))
                self.add(part)

    def _add_plugins(self) -> None:
        if not self._by_entry:
            load_plugins(self.group, lambda loaded, origin: self.add(self._checked(loaded), origin), self._broken)
            return
        for point in plugin_points(self.group):
            self._put(Registered(point.name, point.value, origin_of(point)))

    def _put(self, registered: Registered[Part]) -> None:
        known = self._known.setdefault(registered.name, [])
        if registered.part is None:
            same = any(other.target == registered.target for other in known)
        else:
            same = any(other.part is registered.part for other in known)
        if not same:
            # Ours are looked at last, but named first.
            known.insert(0 if registered.distribution == OURS else len(known), registered)

    def _clash(self, name: str) -> str:
        both = " and ".join(f"{registered.target} ({registered.distribution})" for registered in self._known[name])
        return f"the {self.kind} {name} exists twice: {both}; uninstall one"

    def _load(self, registered: Registered[Part]) -> Part:
        try:
            return self._checked(pkgutil.resolve_name(registered.target))
        except MissingPackageError:
            raise
        except Exception as error:  # a plug-in may fail in any way; it must not take the others along
            raise DefinitionError(
                f'{self.kind} "{registered.name}" cannot be loaded from {registered.target} of '
                f"{registered.distribution}: {type(error).__name__}: {error}; update or uninstall it"
            ) from error


def modules_of(package: str) -> Iterator[str]:
    """The names of all modules in a package and in its folders, in one order. None but the package is imported."""
    folders = [(package, _folders(package))] if package else []
    while folders:
        name, paths = folders.pop(0)
        for info in pkgutil.iter_modules(paths, f"{name}."):
            if info.ispkg:
                folder = info.name.rpartition(".")[2]
                folders.append((info.name, [os.path.join(path, folder) for path in paths]))  # noqa: PTH118 - of a zip, too
            else:
                yield info.name


def _folders(package: str) -> list[str]:
    module = importlib.import_module(package)
    if module.__file__ is not None:
        return list(module.__path__)
    # A folder of the same name beside the program, such as docs/connectors, hides the package of an editable install.
    specs = [finder.find_spec(package, None) for finder in sys.meta_path]
    return next((list(spec.submodule_search_locations or ()) for spec in specs if spec and spec.origin), [])


def class_of(base: type[Any]) -> Callable[[object], Any]:
    """What `Catalog` checks classes by: subclasses of `base`."""

    def checked(value: object) -> Any:
        if not (isinstance(value, type) and issubclass(value, base)):
            raise TypeError(f"it is not a subclass of {base.__name__}")
        return value

    return checked


def types_of(config: type[Any]) -> tuple[str, ...]:
    """The names of a pydantic model by which `type` chooses it: the field's default; none for a base of several."""
    name = config.model_fields["type"].default
    return (name,) if isinstance(name, str) else ()


def load_plugins(group: str, add: Callable[[Any, str], None], problems: list[str]) -> None:
    """Load all entry points of `group` and give each to `add`, with the name of the distribution it is from.

    One that cannot be imported, or that `add` refuses, is skipped with a `RuntimeWarning` and a line in `problems`.
    """
    for point in plugin_points(group):
        origin = origin_of(point)
        try:
            add(point.load(), origin)
        except RAISED as error:  # a plug-in's own code may raise anything, and must not take the rest down
            problem = f"plug-in {point.name} of {origin} ({point.value}): {type(error).__name__}: {error}"
            problems.append(problem)
            warnings.warn(f"{problem}; it is skipped", RuntimeWarning, stacklevel=2)


def plugin_points(group: str) -> list[EntryPoint]:
    """The entry points of a group that other distributions have, none of them imported; always in one order."""
    # The same one may be found twice where a folder is twice on sys.path.
    points = {(origin_of(point), point.name, point.value): point for point in entry_points(group=group)}
    return [points[key] for key in sorted(points) if key[0] != DISTRIBUTION]


def origin_of(point: EntryPoint) -> str:
    """The distribution that an entry point is from; its target where that is not known."""
    return point.dist.name if point.dist is not None else point.value


def _target(part: object) -> str:
    named = part if isinstance(part, type) else type(part)
    return getattr(part, "target", None) or f"{named.__module__}.{named.__qualname__}"


def _likeness(name: str, module: str) -> int:
    """Sort key for imports: the number of letters in those words of `name` that `module` contains."""
    squeezed = module.replace("_", "")
    return sum(len(word) for word in re.findall("[a-z0-9]+", name.lower()) if word in squeezed)
