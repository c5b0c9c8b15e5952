"""Conversion between the forms that an array or an image can have.

A *form* is one way to hold the same thing: a numpy array, a nested list, a torch tensor; a PNG file, a Pillow image. A
`Factory` declares a form and knows its objects, a `Converter` makes one form of another. Objects are known by the name
of their class, so that no package is imported before an object of it is met.

A plug-in adds forms and converters by entry points: `Factory` objects in the group `streamer.formats`, `Converter`
objects in `streamer.converters`. A form with one converter to the canonical form and one from it converts to and from
every other one: `SerializedNDArray` for arrays, a PNG file for images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from pipelines.errors import DataError, nearest
from pipelines.plugins.catalog import OURS, RegistryError, load_plugins
from pipelines.plugins.requirements import Requirement, Requires, how_to_install, required
from pipelines.values.conversion.formats import Format

FORMAT_GROUP = "streamer.formats"
CONVERTER_GROUP = "streamer.converters"

Kind: TypeAlias = Literal["array", "image"]
F = TypeVar("F", bound=Format)

# How many ways from a form to a target are cached.
_PLANS = 256


@dataclass(frozen=True, slots=True)
class Factory:
    """A form: its name, and how its objects are known."""

    kind: Kind
    form: str
    """In lower case, one word: `"torch"`."""
    classes: tuple[str, ...] = ()
    """Full names of its classes, `"torch.Tensor"`; subclasses belong too. Converters make objects of the first."""
    accepts: Callable[[Any], bool] | None = None
    """Recognises its objects by a protocol or their content, if no class of any form fits."""
    aliases: tuple[str, ...] = ()
    """Other names that users may ask for it by."""
    requires: Requires = ()
    """The packages that must be installed: import names, or combinations by `pipelines.all_of` and `any_of`."""
    measure: Callable[[Any], tuple[int, ...]] | None = None
    """The shape of an object without a conversion; for images height, width and 1 or 3 channels."""

    @property
    def available(self) -> bool:
        """Whether the packages that it requires are installed."""
        return self.lacking is None

    @property
    def lacking(self) -> Requirement | None:
        """The part of them that is not installed; `None` if all are."""
        return required(self.requires).lacking()


@dataclass(frozen=True, slots=True)
class Converter:
    """Makes the form `target` of the form `source`."""

    kind: Kind
    source: str
    target: str
    convert: Callable[[Any, Any], Any]
    """Called with the object and the wanted `ArrayFormat` or `ImageFormat`. Raises `DataError` if it cannot.

    It may give back the object's own memory, and must not write to it.
    """
    honours: frozenset[str] = frozenset()
    """Names of the details of the format that it supports. Another detail is an error."""


class FactoryRegistry:
    """The forms of one kind."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._forms: dict[str, tuple[str, Factory]] = {}
        self._names: dict[str, Factory] = {}
        self._clashes: dict[str, str] = {}
        self._of_class: dict[type[Any], Factory | None] = {}

    def add(self, factory: Factory, origin: str = OURS) -> str | None:
        """Add a form.

        Returns:
            A message if another form has its name, an alias or a class; then each use of that is a `RegistryError`.
        """
        names = (factory.form, *factory.aliases, *factory.classes)
        for name in names:
            other = self._names.setdefault(name, factory)
            if other is not factory:
                first = self._forms[other.form][0]
                self._clashes[name] = (
                    f'two forms of {self.kind}s claim "{name}": {other.form} ({first}) and {factory.form} ({origin}); '
                    "uninstall one"
                )
        self._forms.setdefault(factory.form, (origin, factory))
        self._of_class.clear()
        return next((self._clashes[name] for name in names if name in self._clashes), None)

    def named(self, name: str) -> Factory:
        """The form of this name or alias. `DataError` naming those that there are."""
        factory = self._claimed(name)
        if factory is None:
            raise DataError(
                f"No converter found from {self.kind.capitalize()} to {name!r}; "
                f"there are {', '.join(self._forms)}{nearest(name, self._forms)}"
            )
        return factory

    def made_of_class(self, cls: type[Any]) -> Factory | None:
        """The form whose converters make objects of `cls`."""
        factory = self._claimed(_full_name(cls))
        return factory if factory is not None and factory.classes[:1] == (_full_name(cls),) else None

    def of_class(self, cls: type[Any]) -> Factory | None:
        """The form that `cls` or one of its bases belongs to."""
        if cls not in self._of_class:
            known = (self._claimed(_full_name(base)) for base in cls.__mro__)
            self._of_class[cls] = next((factory for factory in known if factory is not None), None)
        return self._of_class[cls]

    def of(self, value: object) -> Factory | None:
        """The form of this object: by its class, else the first that accepts it; `None` if there is none."""
        factory = self.of_class(type(value))
        if factory is not None:
            return factory
        return next((factory for _, factory in self if factory.accepts is not None and factory.accepts(value)), None)

    def __iter__(self) -> Iterator[tuple[str, Factory]]:
        """Every form, with where it comes from."""
        return iter(self._forms.values())

    def _claimed(self, name: str) -> Factory | None:
        if name in self._clashes:
            raise RegistryError(self._clashes[name])
        return self._names.get(name)


class ConverterRegistry:
    """The converters of one kind."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self._converters: dict[tuple[str, str], list[tuple[str, Converter]]] = {}

    def add(self, converter: Converter, origin: str = OURS) -> str | None:
        """Add a converter.

        Returns:
            A message if there is one between the same forms; then each use of them is a `RegistryError`.
        """
        known = self._converters.setdefault((converter.source, converter.target), [])
        if all(other is not converter for _, other in known):
            known.append((origin, converter))
        return _clash(known)

    def direct(self, source: str, target: str) -> Converter | None:
        """The converter between these forms, if there is one. `RegistryError` naming all if there are several."""
        known = self._converters.get((source, target))
        if known is None:
            return None
        if clash := _clash(known):
            raise RegistryError(clash)
        return known[0][1]

    def __iter__(self) -> Iterator[tuple[str, Converter]]:
        """Every converter, with where it comes from."""
        return (converter for known in self._converters.values() for converter in known)


@dataclass(frozen=True, slots=True)
class ListedForm:
    """A form that is known, for listings."""

    kind: Kind
    form: str
    classes: tuple[str, ...]
    available: bool
    reason: str
    """Why it is not available; else empty."""
    origin: str
    """`streamer`, or the plug-in's distribution."""


@dataclass(frozen=True, slots=True)
class ListedConverter:
    """A converter that is known, for listings."""

    kind: Kind
    source: str
    target: str
    honours: tuple[str, ...]
    origin: str


class Conversions(Generic[F]):
    """Forms and converters of arrays (`pipelines.values.array_conversions()`) or images (`image_conversions()`)."""

    def __init__(self, kind: Kind, format_class: type[F], canonical: str, *, plugins: bool = True) -> None:
        self.kind = kind
        self.canonical = canonical
        self.problems: list[str] = []
        """Problems of registration, one line each: plug-ins that fail to import, converters that exist twice."""
        self._format = format_class
        self._factories = FactoryRegistry(kind)
        self._converters = ConverterRegistry(kind)
        self._plans: dict[tuple[str, object], tuple[F, tuple[Converter, ...]]] = {}
        self._pending = plugins

    @property
    def factories(self) -> FactoryRegistry:
        """The forms, with those of plug-ins."""
        self._load_plugins()
        return self._factories

    @property
    def converters(self) -> ConverterRegistry:
        """The converters, with those of plug-ins."""
        self._load_plugins()
        return self._converters

    def add(self, *registered: Factory | Converter, origin: str = OURS) -> None:
        """Make forms and converters known. One that exists already is noted in `problems` and an error when used."""
        self._plans.clear()
        for part in registered:
            clash = (
                self._factories.add(part, origin) if isinstance(part, Factory) else self._converters.add(part, origin)
            )
            if clash is not None:
                self.problems.append(clash)

    def wanted(self, target: object) -> F:
        """The format of `target`: a format itself, a text that describes one, or a class. Raises `DataError`."""
        if isinstance(target, type):
            factory = self.factories.made_of_class(target) or self.factories.named(_full_name(target))
            return self._format(factory.form)
        if isinstance(target, str):
            target = self._format.parse(target)
        if not isinstance(target, self._format):
            raise DataError(
                f"an {self.kind} is converted to a class, a text or an {self._format.__name__}, not to {target!r}"
            )
        form = self.factories.named(target.form).form
        return target if form == target.form else replace(target, form=form)

    def route(self, source: str, wanted: F) -> tuple[Converter, ...]:
        """The converters to call, in order: none, a direct one, or two through the canonical form.

        Raises `DataError` if there is no way, or the last one does not know a detail that is asked for, and
        `RegistryError` for converters that exist twice.
        """
        details = wanted.details
        if source == wanted.form and not details:
            return ()
        route = self._shortest(source, wanted.form)
        unknown = sorted(details.keys() - route[-1].honours)
        if unknown:
            raise DataError(
                f"the converter from {route[-1].source} to {wanted.form} knows no {' or '.join(unknown)}; "
                f"it knows {', '.join(sorted(route[-1].honours)) or 'no details'}"
            )
        return route

    def convert(self, value: Any, source: str, target: object) -> Any:
        """`value`, which has the form `source`, in the format of `target` (see `wanted`). Raises `DataError`."""
        wanted, route = self._plan(source, target)
        for converter in route[:-1]:
            value = converter.convert(value, self._format(converter.target))
        return route[-1].convert(value, wanted) if route else value

    def listing(self) -> tuple[list[ListedForm], list[ListedConverter]]:
        """Every form and every converter that is known, without importing any package."""
        forms = [
            ListedForm(self.kind, factory.form, factory.classes, factory.available, _why(factory), origin)
            for origin, factory in self.factories
        ]
        converters = [
            ListedConverter(self.kind, converter.source, converter.target, tuple(sorted(converter.honours)), origin)
            for origin, converter in self.converters
        ]
        return forms, converters

    def _plan(self, source: str, target: object) -> tuple[F, tuple[Converter, ...]]:
        try:
            plan = self._plans.get((source, target))
        except TypeError:
            # An unhashable target is no target: `wanted` raises the error.
            plan = None
        if plan is None:
            wanted = self.wanted(target)
            plan = wanted, self.route(source, wanted)
            if len(self._plans) >= _PLANS:
                self._plans.clear()
            self._plans[source, target] = plan
        return plan

    def _shortest(self, source: str, target: str) -> tuple[Converter, ...]:
        direct = self.converters.direct(source, target)
        if direct is not None:
            return (direct,)
        first = self.converters.direct(source, self.canonical)
        second = self.converters.direct(self.canonical, target)
        if first is None or second is None:
            lacking = f"{source} to {self.canonical}" if first is None else f"{self.canonical} to {target}"
            raise DataError(
                f"No converter found from {source} to {target}: there is no direct one, and none from {lacking} "
                f"either; a plug-in may bring one (group {CONVERTER_GROUP})"
            )
        return first, second

    def _load_plugins(self) -> None:
        if not self._pending:
            return
        self._pending = False
        parts, problems = conversion_plugins()
        self.problems.extend(problems)
        for origin, part in parts:
            if part.kind == self.kind:
                self.add(part, origin=origin)


@cache
def conversion_plugins() -> tuple[list[tuple[str, Factory | Converter]], list[str]]:
    """The forms and converters of plug-ins, each with its distribution, and the problems found; looked for once."""
    parts: list[tuple[str, Factory | Converter]] = []
    problems: list[str] = []
    for group, wanted in ((FORMAT_GROUP, Factory), (CONVERTER_GROUP, Converter)):

        def add(plugin: Any, origin: str, wanted: type[Any] = wanted) -> None:
            many = plugin if isinstance(plugin, Iterable) else (plugin,)
            listed = list(many)
            if not all(isinstance(part, wanted) for part in listed):
                raise TypeError(f"the entry point must name a {wanted.__name__} or several in a list")
            parts.extend((origin, part) for part in listed)

        load_plugins(group, add, problems)
    return parts, problems


def _why(form: Factory) -> str:
    if form.lacking is None:
        return ""
    how = how_to_install(form.lacking)
    return f"not installed: {form.lacking}{'' if how is None else f' ({how})'}"


def _clash(known: list[tuple[str, Converter]]) -> str | None:
    if len(known) < 2:
        return None
    first = known[0][1]
    both = " and ".join(f"{_full_name(converter.convert)} ({origin})" for origin, converter in known)
    return f"the converter of {first.kind}s from {first.source} to {first.target} exists twice: {both}; uninstall one"


def _full_name(named: Any) -> str:
    return f"{named.__module__}.{getattr(named, '__qualname__', type(named).__qualname__)}"
