"""`Registry`: the step types, built in and from plug-ins, and the runners that can run them.

A plug-in is an installed package with entry points: in the group `streamer.steps` subclasses of `Step`, in
`streamer.runners` objects like `RunnerFactory`, and for the parts of graphs and triggers subclasses of `GraphStep`
(`streamer.graph_steps`), `SwitchFunction` (`streamer.switch_functions`), `CombineFunction`
(`streamer.combine_functions`) and `Trigger` (`streamer.triggers`). They are read when the registry is first used.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from pipelines.errors import DefinitionError, MissingPackageError, StreamerError, nearest
from pipelines.plugins.entrypoints import OURS, RegistryError, load_plugins
from pipelines.plugins.requirements import Requirement, Requires, how_to_install, required
from pipelines.runners.runner import OpenContext, Runner
from pipelines.steps import PARTS, STEPS, Step
from pipelines.steps.base import Typed
from pipelines.steps.flow.combine import CombineFunction
from pipelines.steps.flow.graph import GraphStep
from pipelines.steps.flow.switch import SwitchFunction
from pipelines.steps.flow.trigger import Trigger

__all__ = ["OURS", "RUNNERS", "Factory", "Listed", "Registry", "RegistryError", "RunnerFactory", "default_registry"]

RUNNER_GROUP = "streamer.runners"
TYPE_GROUPS: Mapping[str, type[Typed]] = MappingProxyType(
    {
        "streamer.steps": Step,
        "streamer.graph_steps": GraphStep,
        "streamer.switch_functions": SwitchFunction,
        "streamer.combine_functions": CombineFunction,
        "streamer.triggers": Trigger,
    }
)
"""Groups of entry points, and the class that theirs derive from."""

_log = logging.getLogger(__name__)

Kind = TypeVar("Kind", bound=Typed)


class Factory(Protocol):
    """Makes runners for one step type. `RunnerFactory` is one; a plug-in may bring an object of its own."""

    @property
    def step_type(self) -> str:
        """The `@type` it runs."""

    @property
    def name(self) -> str:
        """Its name, unique for its step type."""

    @property
    def priority(self) -> int:
        """The highest that is available runs the step; among equals the first by name. Built-in ones have 0."""

    @property
    def requires(self) -> Requires:
        """The packages that must be installed: import names, or combinations of them by `all_of` and `any_of`."""

    def create(self, step: Step, context: OpenContext) -> Runner:
        """A runner, ready to run: models are loaded here. May raise any exception."""


@dataclass(frozen=True, slots=True)
class RunnerFactory:
    """A runner class, imported when the first runner is made and constructed as `RunnerClass(step, context)`."""

    step_type: str
    name: str
    target: str
    """`module:Class`."""
    requires: Requires = ()
    """Import names of packages that are all needed, or combinations by `pipelines.all_of` and `any_of`."""
    extra: str | None = None
    """The optional extra of our own distribution that installs the packages given without one."""
    priority: int = 0

    def create(self, step: Step, context: OpenContext) -> Runner:
        """Import the class and construct a runner."""
        module, _, name = self.target.partition(":")
        runner: Runner = getattr(importlib.import_module(module), name)(step, context)
        return runner


RUNNERS: tuple[RunnerFactory, ...] = tuple(
    RunnerFactory(step.type_name, by.name, by.target, by.requires, by.extra)
    for step in STEPS
    if (by := step.run_by) is not None
)
"""The built-in runners."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of `streamer steps`."""

    step_type: str
    runner: str | None
    """The runner's name; `None` for a step without a runner."""
    priority: int
    available: bool
    reason: str
    """Why it is not available; else empty."""
    origin: str
    """Where the runner, or the step without one, comes from: `streamer` or the plug-in's distribution."""


class Registry:
    """Step types and runner factories. `default_registry()` is the one that is used unless another is given."""

    def __init__(self, *, plugins: bool = True, builtins: bool = True) -> None:
        self.problems: list[str] = []
        """Problems of registration, one line each: plug-ins that fail to import, names that exist twice."""
        self._types: dict[str, dict[str, list[tuple[str, type[Any]]]]] = {
            base.kind: {} for base in TYPE_GROUPS.values()
        }
        self._factories: dict[str, list[tuple[str, Factory]]] = {}
        self._pending = plugins
        self._ties: set[str] = set()
        if builtins:
            for known in (*STEPS, *PARTS):
                self.add_type(known)
            for factory in RUNNERS:
                self.add_runner(factory)

    def add_step(self, step: type[Step], origin: str = OURS) -> type[Step]:
        """Make a step type known; usable as a decorator. Otherwise as `add_type`."""
        self.add_type(step, origin)
        return step

    def add_type(self, added: type[Typed], origin: str = OURS) -> None:
        """Make a type known: a step, graph step, switch function, combine function or trigger.

        A second class for the same type is noted in `problems` and makes every use of the type a `RegistryError`.
        """
        known = self._types[added.kind].setdefault(added.type_name, [])
        if any(other is added for _, other in known):
            return
        known.append((origin, added))
        if len(known) > 1:
            self.problems.append(_type_clash(known))

    def add_runner(self, factory: Factory, origin: str = OURS) -> None:
        """Make a runner known. A second one of the same step type and name is treated as `add_step` does."""
        known = self._factories.setdefault(factory.step_type, [])
        if any(other is factory for _, other in known):
            return
        known.append((origin, factory))
        if clash := _runner_clash(factory.step_type, known):
            self.problems.append(clash)

    @property
    def steps(self) -> Mapping[str, type[Step]]:
        """All step types by `@type`; of one that exists twice the first."""
        return self.types(Step)

    def types(self, base: type[Kind]) -> Mapping[str, type[Kind]]:
        """All types of a kind, `types(SwitchFunction)`, by `@type`; of one that exists twice the first."""
        self._load_plugins()
        return MappingProxyType({name: known[0][1] for name, known in self._types[base.kind].items()})

    def step_class(self, type_name: str) -> type[Step] | None:
        """The class for a `@type`, `None` if there is none; `RegistryError` if two have it."""
        return self.type_class(Step, type_name)

    def type_class(self, base: type[Kind], type_name: str) -> type[Kind] | None:
        """The class of a kind for a `@type`; otherwise as `step_class`."""
        self._load_plugins()
        known = self._types[base.kind].get(type_name)
        if known is None:
            return None
        if len(known) > 1:
            raise RegistryError(_type_clash(known))
        return known[0][1]

    def runner_for(self, step: Step, name: str | None = None) -> Factory:
        """The factory that runs the step.

        Without a `name` it is the available one of the highest priority, among equals the first by name, which is
        logged once.

        Raises:
            DefinitionError: There is none of this name.
            MissingPackageError: Packages are missing, and it is known how to install them; names the step and every
                factory that was considered.
            RegistryError: No factory can run the step for another reason, or one name is used twice.
        """
        self._load_plugins()
        known = self._factories.get(step.type_name, [])
        if clash := _runner_clash(step.type_name, known):
            raise RegistryError(clash)
        if name is not None:
            known = [one for one in known if one[1].name == self._checked_name(step.type_name, name)]
        lacking = {factory.name: requirement_of(factory).lacking() for _, factory in known}
        available = [factory for _, factory in _by_preference(known) if lacking[factory.name] is None]
        if not available:
            raise _no_runner(step, [factory for _, factory in _by_preference(known)])
        self._log_tie(step.type_name, available)
        return available[0]

    def create(self, step: Step, context: OpenContext) -> Runner:
        """A runner for the step: `runner_for` with the name that `context.runners` has for its type, and `create`.

        Raises `StreamerError` for a step that runs the user's code where code is not allowed.
        """
        if step.code_keys and not context.allow_code:
            raise StreamerError(
                f"the step runs code that its definition holds or names ({', '.join(step.code_keys)}), and that is "
                "not allowed here; allow it or remove the step"
            )
        if not context.allow_code and (refused := step.option_keys):
            key, why = next(iter(refused.items()))
            raise StreamerError(f"{key} {why}; allow code, or remove it")
        return self.runner_for(step, context.runners.get(step.type_name)).create(step, context)

    def check_runners(self, runners: Mapping[str, str]) -> None:
        """Raise `DefinitionError` unless these are names of runners by the types of their steps."""
        self._load_plugins()
        for step_type, name in runners.items():
            types = {*self._types[Step.kind], *self._factories}
            if step_type not in types:
                raise DefinitionError(f"runners: there is no step {step_type}{nearest(step_type, types)}")
            self._checked_name(step_type, name)

    def origin(self, registered: Factory | type[Typed]) -> str:
        """The distribution that a runner's factory or a type comes from, `streamer` for ours. `KeyError` if unknown."""
        known: Iterable[tuple[str, object]] = (
            self._types[registered.kind].get(registered.type_name, ())
            if isinstance(registered, type)
            else self._factories.get(registered.step_type, ())
        )
        for origin, one in known:
            if one is registered:
                return origin
        raise KeyError(registered)

    def listing(self) -> list[Listed]:
        """Every step type with its runners in the order of preference. Imports no runner and no heavy library."""
        self._load_plugins()
        lines: list[Listed] = []
        steps = self._types[Step.kind]
        for type_name in sorted({*steps, *self._factories}):
            factories = list(_by_preference(self._factories.get(type_name, [])))
            for origin, factory in factories:
                reason = _why(factory)
                if type_name not in steps:
                    reason = f"no step has the type {type_name}"
                lines.append(Listed(type_name, factory.name, factory.priority, not reason, reason, origin))
            if not factories:
                origin = steps[type_name][0][0]
                lines.append(Listed(type_name, None, 0, False, "no runner is installed", origin))
        return lines

    def _checked_name(self, step_type: str, name: str) -> str:
        names = [factory.name for _, factory in _by_preference(self._factories.get(step_type, []))]
        if name not in names:
            there = f"there are {', '.join(names)}" if names else "it has none"
            raise DefinitionError(f'runners: {step_type} has no runner "{name}"{nearest(name, names)}; {there}')
        return name

    def _log_tie(self, step_type: str, available: list[Factory]) -> None:
        first, *others = available
        equal = [other.name for other in others if other.priority == first.priority]
        if not equal or step_type in self._ties:
            return
        self._ties.add(step_type)
        _log.warning(
            "%s is run by %s: %s has the same priority, and the first by name is taken; `runners: {%s: NAME}` chooses",
            step_type,
            first.name,
            " and ".join(equal),
            step_type,
        )

    def _load_plugins(self) -> None:
        if not self._pending:
            return
        self._pending = False
        for group, base in TYPE_GROUPS.items():
            load_plugins(group, partial(self._add_plugin_type, base), self.problems)
        load_plugins(RUNNER_GROUP, self._add_plugin_runner, self.problems)

    def _add_plugin_type(self, base: type[Typed], found: Any, origin: str) -> None:
        if not (
            isinstance(found, type) and issubclass(found, base) and isinstance(getattr(found, "type_name", None), str)
        ):
            wanted = f"{base.__module__}.{base.__name__}"
            raise TypeError(f"the entry point must name a subclass of {wanted} with a type_name")
        self.add_type(found, origin)

    def _add_plugin_runner(self, found: Any, origin: str) -> None:
        wanted = ("step_type", "name", "priority", "requires", "create")
        if lacking := [name for name in wanted if not hasattr(found, name)]:
            raise TypeError(f"the entry point must name an object like RunnerFactory; it lacks {', '.join(lacking)}")
        self.add_runner(found, origin)


@cache
def default_registry() -> Registry:
    """The registry of this process: built-in steps and runners, and those of installed plug-ins."""
    return Registry()


def _by_preference(known: Iterable[tuple[str, Factory]]) -> list[tuple[str, Factory]]:
    return sorted(known, key=lambda one: (-one[1].priority, one[1].name))


def requirement_of(factory: Factory) -> Requirement:
    """The packages that the factory's runner needs."""
    return required(factory.requires, getattr(factory, "extra", None))


def _why(factory: Factory) -> str:
    lacking = requirement_of(factory).lacking()
    if lacking is None:
        return ""
    how = how_to_install(lacking)
    return f"not installed: {lacking}" if how is None else f"it needs {lacking}: {how}"


def _no_runner(step: Step, considered: list[Factory]) -> MissingPackageError | RegistryError:
    if not considered:
        hint = step.instead or f"a plug-in may bring one (group {RUNNER_GROUP})"
        return RegistryError(f"no runner for the step {step.type_name} is installed; {hint}")
    lacking = requirement_of(considered[0]).lacking()
    if len(considered) == 1 and lacking is not None and how_to_install(lacking) is not None:
        return lacking.error(f"the step {step.type_name} (runner {considered[0].name})")
    reasons = "; ".join(f"{factory.name}: {_why(factory)}" for factory in considered)
    return RegistryError(f"no runner can run the step {step.type_name} here ({reasons})")


def _type_clash(known: list[tuple[str, type[Typed]]]) -> str:
    both = " and ".join(f"{found.__module__}.{found.__qualname__} ({origin})" for origin, found in known)
    _, first = known[0]
    return f"the {first.kind} type {first.type_name} exists twice: {both}; uninstall one"


def _runner_clash(step_type: str, known: list[tuple[str, Factory]]) -> str | None:
    origins: dict[str, list[str]] = {}
    for origin, factory in known:
        origins.setdefault(factory.name, []).append(f"{getattr(factory, 'target', type(factory).__name__)} ({origin})")
    for name, both in origins.items():
        if len(both) > 1:
            return f"the runner {name} for {step_type} exists twice: {' and '.join(both)}; uninstall one"
    return None
