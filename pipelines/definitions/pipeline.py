"""`Pipeline`, the base of all definitions of pipelines: labels, a folder, opening and writing."""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor as Pool
from copy import copy
from dataclasses import replace
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Self

from pipelines.batching import BATCH_KEY, checked_batch
from pipelines.definitions.document import Document
from pipelines.definitions.yamlwriter import write_yaml
from pipelines.executors.executor import Executor
from pipelines.executors.lastshapes import LastShapes
from pipelines.executors.policy import StepPolicy
from pipelines.executors.shared import Shared
from pipelines.late import late
from pipelines.observe.profiler import Profiler
from pipelines.runners.runner import OpenContext, RunnerSource
from pipelines.steps.base import Step
from pipelines.steps.config import Form

_default_registry: Final[Callable[[], RunnerSource]] = late("pipelines.plugins.registry:default_registry")
_by_step: Final[Callable[[Pipeline, Mapping[str, StepPolicy]], Mapping[str, StepPolicy]]] = late(
    "pipelines.executors.openpolicy:by_step"
)
_says_geometry: Final[Callable[[Pipeline], bool]] = late("pipelines.definitions.walk:says_geometry")


class Pipeline(ABC):
    """A pipeline's definition, immutable: `Sequence`, `Graph` and `Async` are pipelines."""

    def __init__(
        self,
        *,
        id: str | None = None,
        name: str | None = None,
        base: Path | None = None,
        batch: Mapping[str, Any] | None = None,
    ) -> None:
        self._id = id
        self._name = name
        self._base = base
        self._batch = checked_batch(Document(batch, prefix=(BATCH_KEY,))) if batch else {}

    @property
    def id(self) -> str | None:
        """Konduit's identifier of the pipeline, or `None`."""
        return self._id

    @property
    def name(self) -> str | None:
        """A name to show, or `None`. Konduit Serving does not have it."""
        return self._name

    @property
    def base(self) -> Path | None:
        """The folder where relative paths start; `None`: the working directory at the time of opening."""
        return self._base

    def moved(self, base: Path) -> Self:
        """The same definition, whose relative paths start in the folder `base`."""
        copied = copy(self)
        copied._base = base
        return copied

    @property
    def batch(self) -> Mapping[str, Any]:
        """The batching that its models need, as the `batch` field of a service says it; empty if it says none.

        It is the default of the services that run it; a pipeline inside another has none of its own.
        """
        return MappingProxyType(self._batch)

    @property
    @abstractmethod
    def steps(self) -> Any:
        """The steps as the definition has them: a tuple, or for a graph a mapping."""

    @abstractmethod
    def named_steps(self) -> Sequence[tuple[str, Step]]:
        """The steps that runners run, with their names in errors and metrics."""

    def open(
        self,
        pool: Pool | None = None,
        allow_code: bool = True,
        progress: Callable[[str], None] | None = None,
        registry: RunnerSource | None = None,
        runners: Mapping[str, str] | None = None,
        profile: str | PathLike[str] | Profiler | None = None,
        steps: Mapping[str, StepPolicy] | None = None,
        stopping: threading.Event | None = None,
        shared: Shared | None = None,
        versions: Mapping[Path, int] | None = None,
        opening: int = 0,
        ran: LastShapes | None = None,
        clock: Callable[[], float] = time.time,
        sources: Collection[object] = (),
    ) -> Executor:
        """An executor with every model loaded; close it, or use it in a `with`.

        `pool` (of threads) may run independent work in parallel; `allow_code=False` refuses steps that run Python code
        of the user; `progress` is called with a text for each file that is loaded; `runners` names the runner of a type
        of step, `{"ONNX": "onnxruntime"}`, in place of the registry's choice (`DefinitionError` if unknown). `profile`
        is a file that gets the times of all steps, for a trace viewer, or a `Profiler`, which stays open. `steps` says
        by the name or type of a step which rows are run again and how long a call may take:
        `{"enrich": StepPolicy(retry=Retry(on=["ConnectionError"]))}` (`DefinitionError` if no step is called so). Waits
        before rows are run again end when `stopping` is set. Executors of this pipeline that are opened with the same
        `shared`, one for each thread that runs batches, load each model once. `versions` names the version to open of a
        model in version folders, by the folder that holds these, if not the highest. Executors of different `opening`,
        with one `shared`, have only files in common that have not changed. Models are run on zeros of the shapes
        that those opened before with the same `ran` ran on last, and refused (`StepError`) if they cannot be. `clock`
        gives the present, in seconds since 1970, to steps whose records have no time of their own. `sources` are the
        configurations of the service's sources, if a service runs it: the table of a LOOKUP that names no server is on
        theirs.

        Raises `StepError` naming the step that cannot be opened; its `__cause__` says why: `MissingPackageError`,
        `RegistryError`, `DefinitionError`, ...
        """
        named = dict(runners or {})
        if named:
            (registry or _default_registry()).check_runners(named)
        context = OpenContext(
            pool=pool,
            allow_code=allow_code,
            progress=progress,
            registry=registry,
            runners=named,
            own_geometry=_says_geometry(self),
            policies=_by_step(self, steps) if steps else {},
            stopping=stopping,
            shared=Shared() if shared is None else shared,
            versions=versions or {},
            opening=opening,
            ran=LastShapes() if ran is None else ran,
            clock=clock,
            sources=tuple(sources),
        )
        return self.open_in(context) if profile is None else self._profiled(context, profile)

    @abstractmethod
    def open_in(self, context: OpenContext) -> Executor:
        """`open` for a pipeline that may be a step of another; if it has no folder, paths start at that one's."""

    @abstractmethod
    def to_dict(self, form: Form = "json") -> dict[str, Any]:
        """The definition as plain data, keys spelled as Konduit Serving spells them in JSON or YAML.

        Raises `DefinitionError` for a function that cannot be found again by module and name.
        """

    def to_json(self) -> str:
        """The definition as JSON, which `loads` reads into an equal pipeline. Raises as `to_dict`."""
        return json.dumps(self.to_dict("json"), indent=2, ensure_ascii=False) + "\n"

    def to_yaml(self) -> str:
        """The definition as YAML, which `loads` reads into an equal pipeline. Raises as `to_dict`."""
        return write_yaml(self.to_dict("yaml"))

    @abstractmethod
    def _repr_html_(self) -> str: ...

    def _placed(self, context: OpenContext) -> OpenContext:
        return context if self._base is None else replace(context, base=self._base)

    def _profiled(self, context: OpenContext, profile: str | PathLike[str] | Profiler) -> Executor:
        if isinstance(profile, Profiler):
            return self.open_in(replace(context, observer=profile))
        profiler = Profiler(profile)
        try:
            return self.open_in(replace(context, observer=profiler, finish=profiler.close))
        except BaseException:
            profiler.close()
            raise

    def _labels(self) -> dict[str, Any]:
        labels: dict[str, Any] = {"id": self._id, "name": self._name, BATCH_KEY: dict(self._batch) or None}
        return {key: value for key, value in labels.items() if value is not None}


def is_pipeline(value: object) -> bool:
    """Whether the object is a `Pipeline`."""
    return isinstance(value, Pipeline)
