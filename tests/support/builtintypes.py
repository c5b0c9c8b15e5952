"""The types of steps, graph steps, functions and triggers that this project has."""

from __future__ import annotations

from typing import Final

from pipelines.plugins.registry import TYPE_GROUPS, Registry, RunnerFactory, built_in_runner
from pipelines.steps import Step, Typed

_REGISTRY: Final = Registry(plugins=False)

STEPS: Final[tuple[type[Step], ...]] = tuple(_REGISTRY.steps.values())
PARTS: Final[tuple[type[Typed], ...]] = tuple(
    model for base in TYPE_GROUPS.values() if base is not Step for model in _REGISTRY.types(base).values()
)
RUNNERS: Final[tuple[RunnerFactory, ...]] = tuple(
    runner for step in STEPS if (runner := built_in_runner(step)) is not None
)
