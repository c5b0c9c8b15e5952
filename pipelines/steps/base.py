"""`Step`: the configuration of one step. A runner (`pipelines.runners.runner`) runs it, found by the registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from pydantic import model_validator

from pipelines.harmless import refused_options
from pipelines.plugins.requirements import NOTHING, Requires
from pipelines.steps.config import EXTENSION, Config, Form

TYPE_KEY = "@type"


@dataclass(frozen=True, slots=True)
class RunBy:
    """The runner that this project has for a step."""

    name: str
    """The runner's name: `onnxruntime`, `opencv`, `numpy`, ..."""
    target: str
    """`module:Class`, imported when the first runner is made."""
    requires: tuple[str, ...] = ()
    """Import names of the packages that it needs beyond those that are always installed."""
    extra: str | None = None
    """The optional extra of our distribution that installs them."""


class Typed(Config):
    """Base of all parts of definitions that have a `@type`: steps, and the functions and triggers of steps.

    A subclass sets `type_name`, the value of `@type`, and declares its fields in the order in which Konduit writes
    them.
    """

    type_name: ClassVar[str]
    kind: ClassVar[str]
    """Its kind in messages and in the registry: "step", "switch function", ... Set by the base class of the kind."""
    parts: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Fields that hold a part with a `@type` of its own, and the kind of that part; `pipeline` for a pipeline."""
    file_fields: ClassVar[tuple[str, ...]] = ("model_uri",)
    """Fields, of those that it has, that name files or folders to read."""

    @property
    def code_keys(self) -> tuple[str, ...]:
        """The keys whose values name or hold code of the user that it runs.

        Where code is not allowed, a part that has such keys is refused; a type that runs code of the user has to
        override this.
        """
        return ()

    @property
    def option_keys(self) -> Mapping[str, str]:
        """The keys of options of its libraries that may load code or use files, and why each is refused without code.

        All options that its fields do not mark as `Harmless`.
        """
        return refused_options(self)

    @property
    def files(self) -> tuple[str, ...]:
        """The files and folders that it reads, as the definition names them: a built service has to contain them."""
        named = (getattr(self, field, None) for field in self.file_fields)
        return tuple(path for path in named if isinstance(path, str) and path)

    @property
    def requires(self) -> Requires:
        """The packages that it needs because of its fields, besides those that its runner always needs."""
        return NOTHING

    @property
    def data_files(self) -> tuple[str, ...]:
        """The files and devices of this machine that records get values from, as the definition names them.

        Where definitions are not trusted, each of them has to be allowed.
        """
        return ()

    def to_dict(self, form: Form = "json") -> dict[str, Any]:
        """Plain data with `@type` first, as `form` spells it."""
        return {TYPE_KEY: self.type_name, **super().to_dict(form)}

    @model_validator(mode="before")
    @classmethod
    def _check_type(cls, given: Any) -> Any:
        if not isinstance(given, Mapping) or TYPE_KEY not in given:
            return given
        if given[TYPE_KEY] != cls.type_name:
            raise ValueError(f'"{TYPE_KEY}" is {given[TYPE_KEY]!r}, but {cls.__name__} is "{cls.type_name}"')
        return {key: value for key, value in given.items() if key != TYPE_KEY}


class Step(Typed):
    """Base of all steps: data and validation, no work. The registry knows the built-in ones and those of plug-ins."""

    kind: ClassVar[str] = "step"
    run_by: ClassVar[RunBy | None] = None
    """The runner of a built-in step; a plug-in brings runners by entry points instead."""
    instead: ClassVar[str] = ""
    """The hint of the error where no runner for the step is installed; empty where this project has a runner."""

    shapes: ClassVar[tuple[str, ...]] = ()
    """Fields that shape the state of a step that remembers: state that was saved with other values does not fit."""
    keyed_by: ClassVar[str] = ""
    """Of a step with a state for each key: the field that names the values that are the key; else empty."""

    name: Annotated[str | None, EXTENSION] = None
    """The step's name in errors and metrics; default: its place and type, `0:ONNX`."""

    @property
    def joined_topics(self) -> tuple[str, ...]:
        """Topics whose records its state puts together.

        A source's partitions of the same number have to be read by the same process then, and go back together.
        """
        return ()

    def to_dict(self, form: Form = "json") -> dict[str, Any]:
        """Plain data with `@type` first, as `form` spells it."""
        written = super().to_dict(form)
        if self.name is not None:
            # Declared in the base, hence first; but Konduit's fields come first, in Konduit's order.
            written["name"] = written.pop("name")
        return written
