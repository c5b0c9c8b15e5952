"""FUNCTION: a Python function as a step. Konduit Serving has no such type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from pipelines.definitions.functions import reference, resolve, well_formed
from pipelines.errors import DefinitionError, StreamerError
from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import EXTENSION, Config, Form, Int
from pipelines.steps.keyed.fields import Names


def _kept(value: Any) -> Any:
    if callable(value) or isinstance(value, str):
        return value
    raise ValueError('"module:name" or a Python function is needed')


class HasFunction(Config):
    """Base of configuration that names a function of the user: the function itself, or its name.

    Equal to another if all other fields and the function, or its name, are.
    """

    function: Annotated[str | Callable[..., Any], BeforeValidator(_kept), WithJsonSchema({"type": "string"})]
    """`module:name`, where both may have dots (`package.module:Class.method`); in Python also the function itself."""

    def __init__(self, function: str | Callable[..., Any] | None = None, /, **fields: Any) -> None:
        # Passed only if given: `None` would hide a `function=` among the keywords.
        positional: dict[str, Any] = {} if function is None else {"function": function}
        super().__init__(**positional, **fields)

    @property
    def code_keys(self) -> tuple[str, ...]:
        """The key of the function."""
        return ("function",)

    @property
    def reference(self) -> str | None:
        """`module:name` by which the function is found again; `None` for one that has none, such as a lambda."""
        return self.function if isinstance(self.function, str) else reference(self.function)

    @property
    def label(self) -> str:
        """The function's name in messages."""
        return self.reference or str(getattr(self.function, "__qualname__", type(self.function).__name__))

    def resolved(self, *, allowed: bool) -> Callable[..., Any]:
        """The function itself, imported if it was given by its name.

        Raises `StreamerError` if code is not `allowed`, `DefinitionError` if there is no such function.
        """
        if not allowed:
            raise StreamerError(
                f"the step runs the Python function {self.label}, and code from definitions is not allowed here; "
                "allow it or remove the step"
            )
        return resolve(self.function) if isinstance(self.function, str) else self.function

    def to_dict(self, form: Form = "json") -> dict[str, Any]:
        """Plain data. Raises `DefinitionError` for a function that cannot be found again by module and name."""
        reference = self.reference
        if reference is None:
            raise DefinitionError(
                f"the function {self.label} cannot be written into a definition: move it to the top level of a module "
                'that can be imported, and name it "module:name"'
            )
        return {**super().to_dict(form), "function": reference}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HasFunction) or type(other) is not type(self):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self.reference or self.function)

    def _identity(self) -> tuple[Any, ...]:
        others = (getattr(self, field) for field in type(self).model_fields if field != "function")
        return (self.reference or self.function, *others)

    @field_validator("function")
    @classmethod
    def _check_form(cls, value: str | Callable[..., Any]) -> str | Callable[..., Any]:
        if isinstance(value, str) and not well_formed(value):
            raise ValueError(f'"module:name" is needed, for example "my_steps:scale", not {value!r}')
        return value


class Function(HasFunction, Step):
    """Call a Python function for each record, or for each batch.

    It is `Data -> Data | None | list[Data]`, or `Batch -> Batch` if marked with `pipelines.batched`. It may be `async`,
    may use plain `dict`s for `Data`, or may be an object of a class. With `remember` it is called with the record and a
    `dict` that it finds again at the next record of the same key.

    In files `{"@type": "FUNCTION", "function": "module:name"}`; in Python also the function itself.
    """

    type_name: ClassVar[str] = "FUNCTION"
    run_by: ClassVar[RunBy | None] = RunBy("python", "pipelines.runners.code.functionrunner:function_runner")
    shapes: ClassVar[tuple[str, ...]] = ("remember",)
    keyed_by: ClassVar[str] = "remember"

    args: Annotated[dict[str, Any] | None, EXTENSION] = None
    """Further keyword arguments for the function, or for the constructor of the class: `{threshold: 0.8}`."""
    concurrency: Annotated[int, Field(ge=1, le=10_000), EXTENSION] = 1
    """For how many records of a batch an `async` function runs at the same time."""
    remember: Annotated[Names | None, EXTENSION] = None
    """Key of the value whose records have a state in common, such as a device's name: a text, an integer or a boolean.
    Several, `[site, device]`, together are one. The function is called with the record and this state, a `dict` that it
    changes: `def trend(data, state)`."""
    most_keys: Annotated[Int, Field(alias="keys", ge=1), EXTENSION] = 100_000
    """Keys whose state is remembered, for a partition; beyond it the one that was silent longest goes."""

    def __init__(self, function: str | Callable[..., Any] | None = None, /, **fields: Any) -> None:
        super().__init__(function, **fields)

    @model_validator(mode="after")
    def _check_remember(self) -> Function:
        if self.remember is None and self.most_keys != type(self).model_fields["most_keys"].default:
            raise ValueError('"keys" does nothing without "remember": leave it out')
        if self.remember is not None and self.concurrency > 1:
            raise ValueError(
                '"concurrency" is for async functions, and one that remembers is called for one record after the '
                'other: leave out "concurrency" or "remember"'
            )
        return self
