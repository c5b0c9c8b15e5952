"""All parts of a pipeline, those of pipelines inside it included, without opening any."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pipelines.definitions.asynchronous import TRIGGER_KEY, Async
from pipelines.definitions.definition import load
from pipelines.definitions.graph import Graph
from pipelines.definitions.pipeline import Pipeline
from pipelines.definitions.typereader import Refused, none_refused
from pipelines.errors import DefinitionError, StreamerError
from pipelines.steps import Typed


@dataclass(frozen=True, slots=True)
class Part:
    """A step, graph step, switch function, combine function or trigger, and its place."""

    name: str
    """Its name in errors, `outer/inner` in a pipeline inside another."""
    what: Typed
    base: Path
    """Where its relative paths start."""
    inputs: tuple[str, ...] = ()
    """The names of its inputs, if it is a step of a graph."""


def walk(pipeline: Pipeline, *, refused: Refused = none_refused) -> Iterator[Part]:
    """The parts of a pipeline in their order, each before the parts inside it; definitions in other files are read.

    Raises `DefinitionError` for a file that is wrong, or `refused`.
    """
    yield from _walk(pipeline, Path.cwd(), "", refused)


def says_geometry(pipeline: Pipeline) -> bool:
    """Whether a step, also of a pipeline inside, has an `imageToNDArrayConfig`: it puts boxes of an array right.

    A definition in another file that cannot be read counts as one without; opening it raises the error.
    """
    try:
        return any(getattr(part.what, "image_to_ndarray_config", None) is not None for part in walk(pipeline))
    except (StreamerError, OSError):
        return False


def batches_inside(pipeline: Pipeline, *, refused: Refused = none_refused) -> list[str]:
    """The names of the steps whose pipeline has a `batch`, which does not count there. Raises as `walk`."""
    return [
        part.name
        for part in walk(pipeline, refused=refused)
        for field, kind in part.what.parts.items()
        if kind == "pipeline" and _pipeline(getattr(part.what, field), part, refused).batch
    ]


def _walk(pipeline: Pipeline, base: Path, outer: str, refused: Refused) -> Iterator[Part]:
    base = base if pipeline.base is None else pipeline.base
    if isinstance(pipeline, Async):
        yield Part(outer + TRIGGER_KEY, pipeline.trigger, base)
        pipeline = pipeline.pipeline
    for part in _steps(pipeline, base, outer):
        yield part
        yield from _inside(part, refused)


def _steps(pipeline: Pipeline, base: Path, outer: str) -> list[Part]:
    if isinstance(pipeline, Graph):
        return [Part(outer + name, node.step, base, node.inputs) for name, node in pipeline.steps.items()]
    return [Part(outer + name, step, base) for name, step in pipeline.named_steps()]


def _inside(part: Part, refused: Refused) -> Iterator[Part]:
    for field, kind in part.what.parts.items():
        value = getattr(part.what, field)
        if kind == "pipeline":
            yield from _walk(_pipeline(value, part, refused), part.base, f"{part.name}/", refused)
        elif isinstance(value, Typed):
            inner = Part(f"{part.name}/{value.type_name}", value, part.base)
            yield inner
            yield from _inside(inner, refused)


def _pipeline(pipeline: Pipeline | str, part: Part, refused: Refused) -> Pipeline:
    if not isinstance(pipeline, str):
        return pipeline
    if (why := refused(part.base / pipeline)) is not None:
        raise DefinitionError(f"step {part.name}: {why}")
    return load(part.base / pipeline, refused=refused)
