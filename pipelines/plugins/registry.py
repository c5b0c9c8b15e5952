"""`Registry`: the step types, built in and from plug-ins, and the runners that can run them.

Ours are all types in the package `pipelines.steps`; each names its runner by `run_by`. A plug-in is an installed
package with entry points: in the group `streamer.steps` subclasses of `Step`, in `streamer.runners` objects like
`RunnerFactory`, and for the parts of graphs and triggers subclasses of `GraphStep` (`streamer.graph_steps`),
`SwitchFunction` (`streamer.switch_functions`), `CombineFunction` (`streamer.combine_functions`) and `Trigger`
(`streamer.triggers`).
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Protocol, TypeVar, cast

from pipelines.errors import DefinitionError, MissingPackageError, StreamerError, nearest
from pipelines.plugins.catalog import OURS, Catalog, RegistryError
from pipelines.plugins.requirements import Requirement, Requires, how_to_install, required
from pipelines.runners.runner import OpenContext, Runner
from pipelines.steps.base import Step, Typed
from pipelines.steps.flow.combine import CombineFunction
from pipelines.steps.flow.graph import GraphStep
from pipelines.steps.flow.switch import SwitchFunction
from pipelines.steps.flow.trigger import Trigger

__all__ = [
    "OURS",
    "ListedRunner",
    "MakesRunners",
    "Registry",
    "RegistryError",
    "RunnerFactory",
    "built_in_runner",
    "default_registry",
]

PACKAGE = "pipelines.steps"
"""Holds our steps, and the parts of graphs."""
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
"""Groups of entry points, and the base class of what they name."""

_log = logging.getLogger(__name__)

Kind = TypeVar("Kind", bound=Typed)


class MakesRunners(Protocol):
    """Makes runners for one step type. `RunnerFactory` is one; a plug-in may bring an object of its own."""

    @property
    def step_type(self) -> str:
        """The `@type` of the steps that it runs."""

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


@dataclass(frozen=True, slots=True)
class ListedRunner:
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
    """Step types and runner factories. `default_registry()` is the one that is used unless another is given.

    Args:
        plugins: Whether it knows the types and runners of plug-ins.
        builtins: Whether it knows ours.
    """

    def __init__(self, *, plugins: bool = True, builtins: bool = True) -> None:
        package = PACKAGE if builtins else ""
        self._types: dict[str, Catalog[Any]] = {
            base.kind: Catalog(
                f"{base.kind} type", group, partial(_checked_type, base), _type_names, package, plugins=plugins
            )
            for group, base in TYPE_GROUPS.items()
        }
        self._runners: Catalog[MakesRunners] = Catalog(
            "runner", RUNNER_GROUP, _checked_factory, lambda factory: (_runner_key(factory),), plugins=plugins
        )
        self._ties: set[str] = set()

    @property
    def problems(self) -> list[str]:
        """Problems of registration, one line each: plug-ins that fail to import, names that exist twice."""
        return [problem for catalog in (*self._types.values(), self._runners) for problem in catalog.problems]

    def add_step(self, step: type[Step], origin: str = OURS) -> type[Step]:
        """Make a step type known; usable as a decorator. Otherwise as `add_type`."""
        self.add_type(step, origin)
        return step

    def add_type(self, added: type[Typed], origin: str = OURS) -> None:
        """Make a type known: a step, graph step, switch function, combine function or trigger.

        A second class for the same type is noted in `problems` and makes every use of the type a `RegistryError`.
        """
        self._types[added.kind].add(added, origin)

    def add_runner(self, factory: MakesRunners, origin: str = OURS) -> None:
        """Make a runner known. A second one of the same step type and name is treated as `add_step` does."""
        self._runners.add(factory, origin)

    @property
    def steps(self) -> Mapping[str, type[Step]]:
        """All step types by `@type`; of one that exists twice the first."""
        return self.types(Step)

    def types(self, base: type[Kind]) -> Mapping[str, type[Kind]]:
        """All types of a kind, `types(SwitchFunction)`, by `@type`; of one that exists twice the first."""
        return {name: known.part for name, known in self._types[base.kind].known.items() if known.part is not None}

    def step_class(self, type_name: str) -> type[Step] | None:
        """The class for a `@type`, `None` if there is none; `RegistryError` if two have it."""
        return self.type_class(Step, type_name)

    def type_class(self, base: type[Kind], type_name: str) -> type[Kind] | None:
        """The class of a kind for a `@type`; otherwise as `step_class`."""
        registered = self._types[base.kind].find(type_name)
        return None if registered is None else registered.part

    def runner_for(self, step: Step, name: str | None = None) -> MakesRunners:
        """The factory that runs the step.

        Without a `name` it is the available one of the highest priority, among equals the first by name, which is
        logged once.

        Raises:
            DefinitionError: There is none of this name.
            MissingPackageError: Packages are missing, and it is known how to install them; names the step and every
                factory that was considered.
            RegistryError: No factory can run the step for another reason, or one name is used twice.
        """
        known = self._factories(step.type_name)
        self._check_clashes(known)
        if name is not None:
            known = [factory for factory in known if factory.name == self._checked_name(step.type_name, name)]
        lacking = {factory.name: requirement_of(factory).lacking() for factory in known}
        available = [factory for factory in known if lacking[factory.name] is None]
        if not available:
            raise _no_runner(step, known)
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
        for step_type, name in runners.items():
            types = {*self.steps, *self._runner_types()}
            if step_type not in types:
                raise DefinitionError(f"runners: there is no step {step_type}{nearest(step_type, types)}")
            self._checked_name(step_type, name)

    def origin(self, registered: MakesRunners | type[Typed]) -> str:
        """The distribution that a runner's factory or a type comes from, `streamer` for ours. `KeyError` if unknown."""
        if isinstance(registered, type):
            return self._types[registered.kind].distribution(registered)
        return self._runners.distribution(registered)

    def listing(self) -> list[ListedRunner]:
        """Every step type with its runners in the order of preference. Imports no runner and no heavy library."""
        lines: list[ListedRunner] = []
        steps = self._types[Step.kind].known
        for type_name in sorted({*steps, *self._runner_types()}):
            factories = self._factories(type_name)
            for factory in factories:
                reason = _why(factory)
                if type_name not in steps:
                    reason = f"no step has the type {type_name}"
                origin = self._runners.distribution(factory)
                lines.append(ListedRunner(type_name, factory.name, factory.priority, not reason, reason, origin))
            if not factories:
                origin = steps[type_name].distribution
                lines.append(ListedRunner(type_name, None, 0, False, "no runner is installed", origin))
        return lines

    def _factories(self, step_type: str) -> list[MakesRunners]:
        """The runners of a type of step, in the order of preference; two that clash are both among them."""
        step = self._types[Step.kind].built_in(step_type)
        if step is not None and (ours := built_in_runner(step)) is not None:
            self._runners.add(ours)
        known = (registered.part for registered in self._runners.registered() if registered.part is not None)
        return sorted(
            (factory for factory in known if factory.step_type == step_type),
            key=lambda factory: (-factory.priority, factory.name),
        )

    def _runner_types(self) -> set[str]:
        """The types of steps that runners of plug-ins, and those that were added, can run."""
        return {registered.part.step_type for registered in self._runners.registered() if registered.part is not None}

    def _check_clashes(self, factories: list[MakesRunners]) -> None:
        for factory in factories:
            self._runners.find(_runner_key(factory))

    def _checked_name(self, step_type: str, name: str) -> str:
        names = [factory.name for factory in self._factories(step_type)]
        if name not in names:
            there = f"there are {', '.join(names)}" if names else "it has none"
            raise DefinitionError(f'runners: {step_type} has no runner "{name}"{nearest(name, names)}; {there}')
        return name

    def _log_tie(self, step_type: str, available: list[MakesRunners]) -> None:
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


@cache
def default_registry() -> Registry:
    """The registry of this process: built-in steps and runners, and those of installed plug-ins."""
    return Registry()


@cache
def built_in_runner(step: type[Step]) -> RunnerFactory | None:
    """The runner that a step of ours names by `run_by`."""
    by = step.run_by
    return None if by is None else RunnerFactory(step.type_name, by.name, by.target, by.requires, by.extra)


def requirement_of(factory: MakesRunners) -> Requirement:
    """The packages that the factory's runner needs."""
    return required(factory.requires, getattr(factory, "extra", None))


def _why(factory: MakesRunners) -> str:
    lacking = requirement_of(factory).lacking()
    if lacking is None:
        return ""
    how = how_to_install(lacking)
    return f"not installed: {lacking}" if how is None else f"it needs {lacking}: {how}"


def _no_runner(step: Step, considered: list[MakesRunners]) -> MissingPackageError | RegistryError:
    if not considered:
        hint = step.instead or f"a plug-in may bring one (group {RUNNER_GROUP})"
        return RegistryError(f"no runner for the step {step.type_name} is installed; {hint}")
    lacking = requirement_of(considered[0]).lacking()
    if len(considered) == 1 and lacking is not None and how_to_install(lacking) is not None:
        return lacking.error(f"the step {step.type_name} (runner {considered[0].name})")
    reasons = "; ".join(f"{factory.name}: {_why(factory)}" for factory in considered)
    return RegistryError(f"no runner can run the step {step.type_name} here ({reasons})")


def _type_names(part: type[Typed]) -> tuple[str]:
    return (part.type_name,)


def _checked_type(base: type[Typed], value: object) -> type[Typed]:
    if not (isinstance(value, type) and issubclass(value, base) and isinstance(getattr(value, "type_name", None), str)):
        wanted = f"{base.__module__}.{base.__name__}"
        raise TypeError(f"the entry point must name a subclass of {wanted} with a type_name")
    return value


def _runner_key(factory: MakesRunners) -> str:
    return f"{factory.name} for {factory.step_type}"


def _checked_factory(value: object) -> MakesRunners:
    wanted = ("step_type", "name", "priority", "requires", "create")
    if lacking := [name for name in wanted if not hasattr(value, name)]:
        raise TypeError(f"the entry point must name an object like RunnerFactory; it lacks {', '.join(lacking)}")
    return cast(MakesRunners, value)
