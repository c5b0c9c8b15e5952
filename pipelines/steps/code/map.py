"""MAP: values of records by SQL expressions, and which records go on. Konduit Serving has no such type."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, field_validator, model_validator

from pipelines.conditions.comparing import Comparisons
from pipelines.conditions.condition import Conditions, Described, singly
from pipelines.expressions.engine import POLARS
from pipelines.expressions.language import bare_name, check_language
from pipelines.plugins.requirements import NOTHING, Requires
from pipelines.steps.base import RunBy, Step
from pipelines.steps.config import Key


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, (str, dict)) else value


def _checked(text: str) -> str:
    check_language(text)
    return text


Text = Annotated[str, AfterValidator(_checked)]
"""An expression, as far as that can be told without Polars."""


class Map(Step):
    """Make values of others by SQL expressions, and leave out or fail records by conditions.

    `where`, then `ensure`, then `select`; each sees only the records that the ones before it left.
    """

    type_name: ClassVar[str] = "MAP"
    run_by: ClassVar[RunBy | None] = RunBy("polars", "pipelines.runners.code.map:MapRunner")
    yaml_case: ClassVar[Literal["snake", "camel"]] = "camel"

    where: Conditions | None = None
    """Which records go on; the others are dropped. An expression that is true or false (`temp > 5 and room <> 'attic'`), a mapping as `when` of a sink has it (`{room: [hall, attic]}`), or a list of these, which must all hold."""  # noqa: E501
    ensure: Annotated[tuple[Described, ...], BeforeValidator(_listed)] = ()
    """What has to be true of each record; one for which it is not fails, and becomes a dead letter. A list of expressions and mappings."""  # noqa: E501
    select: dict[Key, Text] = {}  # noqa: RUF012 - pydantic copies it
    """New values by key, `{fahrenheit: temp * 1.8 + 32}`. All expressions read the values that came in. The name of a value alone, `{temperature: temp}`, gives it another key, whatever its type."""  # noqa: E501
    keep: Literal["all"] | tuple[str, ...] = "all"
    """Which of the values that came in stay, besides those of `select`: all, or a list of keys."""

    @property
    def requires(self) -> Requires:
        """Polars, if it has an expression; names alone and mappings need nothing."""
        return POLARS if self.expressions else NOTHING

    @property
    def expressions(self) -> tuple[str, ...]:
        """All its SQL expressions but names alone, which only give values other keys."""
        selected = [text for text in self.select.values() if bare_name(text) is None]
        conditions = [each for each in (*singly(self.where), *self.ensure) if isinstance(each, str)]
        return (*conditions, *selected)

    @field_validator("where", "ensure")
    @classmethod
    def _are_conditions(cls, described: Any) -> Any:
        for each in singly(described):
            if isinstance(each, str):
                check_language(each)
            else:
                Comparisons(each)
        return described

    @model_validator(mode="after")
    def _does_something(self) -> Map:
        if self.where is None and not self.ensure and not self.select and self.keep == "all":
            raise ValueError("it does nothing: give where, ensure, select or keep")
        return self
