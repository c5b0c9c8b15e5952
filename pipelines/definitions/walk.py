"""Everything that a pipeline is made of, those inside it included, without opening any of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.definitions.asynchronous import TRIGGER_KEY, Async
from pipelines.definitions.graph import Graph
from pipelines.executors.pipeline import Pipeline
from pipelines.steps import Typed

if TYPE_CHECKING:
    from pipelines.plugins.registry import Registry


@dataclass(frozen=True, slots=True)
class Part:
    """A step, graph step, switch function, combine function or trigger, and where it stands."""

    name: str
    """What errors call it, `outer/inner` in a pipeline inside another."""
    what: Typed
    base: Path
    """Where its relative paths start."""
    inputs: tuple[str, ...] = ()
    """The names of its inputs, if it is a step of a graph."""


def walk(pipeline: Pipeline, base: Path | None = None, *, registry: Registry | None = None) -> Iterator[Part]:
    """The parts of a pipeline in their order, what is inside one after it; definitions in files of their own are read.

    `base` serves where the pipeline has no folder of its own. Raises `DefinitionError` for a file that is wrong.
    """
    yield from _walk(pipeline, base or Path.cwd(), registry, "")


def _walk(pipeline: Pipeline, base: Path, registry: Registry | None, outer: str) -> Iterator[Part]:
    base = base if pipeline.base is None else pipeline.base
    if isinstance(pipeline, Async):
        yield Part(outer + TRIGGER_KEY, pipeline.trigger, base)
        pipeline = pipeline.pipeline
    for part in _steps(pipeline, base, outer):
        yield part
        yield from _inside(part, registry)


def _steps(pipeline: Pipeline, base: Path, outer: str) -> list[Part]:
    if isinstance(pipeline, Graph):
        return [Part(outer + name, node.step, base, node.inputs) for name, node in pipeline.steps.items()]
    return [Part(outer + name, step, base) for name, step in pipeline.named_steps()]


def _inside(part: Part, registry: Registry | None) -> Iterator[Part]:
    for field, kind in part.what.parts.items():
        found = getattr(part.what, field)
        if kind == "pipeline":
            yield from _walk(_pipeline(found, part.base, registry), part.base, registry, f"{part.name}/")
        elif isinstance(found, Typed):
            inner = Part(f"{part.name}/{found.type_name}", found, part.base)
            yield inner
            yield from _inside(inner, registry)


def _pipeline(found: Pipeline | str, base: Path, registry: Registry | None) -> Pipeline:
    if not isinstance(found, str):
        return found
    # Imported here because reading definitions needs the registry, which knows what stands in them.
    from pipelines.definitions.definition import load

    load_: Callable[..., Pipeline] = load
    return load_(base / found, registry=registry)
