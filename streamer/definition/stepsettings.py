"""The field `steps` of a service: which records a step runs again, and how long it may take for each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from connectors.units import Duration
from pipelines.definitions.functions import reference
from pipelines.definitions.pipeline import Pipeline
from pipelines.described import FrozenSettings
from pipelines.executors.errorclasses import check_error_class, is_known
from pipelines.executors.openpolicy import UnknownStepError, by_step
from pipelines.executors.policy import Retry, StepPolicy


def _listed(value: object) -> object:
    return (value,) if isinstance(value, (str, type)) else value


def _error_name(value: object) -> object:
    """A class by its name, as a service file has it; a name if it can be that of a class."""
    if isinstance(value, type):
        name = value.__name__ if is_known(value) else reference(value)
        if name is None:
            raise ValueError(f"{value.__qualname__} cannot be found by its name: move it to the top level of a module")
        value = name
    if isinstance(value, str):
        check_error_class(value)
    return value


ErrorName = Annotated[str, BeforeValidator(_error_name, json_schema_input_type=str)]
"""The name of a class of errors; in Python the class itself, too."""


class RetrySettings(FrozenSettings):
    """How records that failed in a step are run again."""

    attempts: Annotated[int, Field(ge=1)] = 3
    """How often a record is run in all, the first time included."""
    wait: Duration = 0.2
    """How long to wait before the second attempt at most; doubled for each further one, up to 30 s. Each wait is between half of that and all of it, at random."""  # noqa: E501
    on: Annotated[
        tuple[ErrorName, ...],
        BeforeValidator(_listed, json_schema_input_type=str | tuple[str, ...]),
        Field(min_length=1),
    ]
    """Classes of errors after which a record is run again, their subclasses included: errors of Python by their names, others with their modules, `requests.exceptions.Timeout`."""  # noqa: E501


class StepSettings(FrozenSettings):
    """What is done for a step beyond running it."""

    retry: RetrySettings | None = None
    """Runs records again whose errors may pass; by default an error counts at once."""
    timeout: Annotated[Duration, Field(gt=0)] | None = None
    """How long the call of an `async` function for one record may take; then it is cancelled, and the record fails with `TimeoutError`. By default for ever."""  # noqa: E501

    def policy(self) -> StepPolicy:
        """The same for executors."""
        retry = self.retry
        again = None if retry is None else Retry(on=retry.on, attempts=retry.attempts, wait=retry.wait)
        return StepPolicy(again, self.timeout)


def policies(steps: Mapping[str, StepSettings]) -> dict[str, StepPolicy]:
    """The settings of steps, by their names or types, for executors."""
    return {name: settings.policy() for name, settings in steps.items()}


def check_steps(steps: Mapping[str, StepSettings], pipeline: Pipeline, stuck: float) -> None:
    """Raise pydantic's error, at its place, for the name of a step that there is not, and for waits that are too long.

    `stuck` is the time after which the service counts as hung, whatever it waits for.
    """
    try:
        resolved = by_step(pipeline, policies(steps))
    except UnknownStepError as error:
        raise _located((error.name,), error.why, steps) from None
    longest = sum(policy.longest for policy in resolved.values())
    if longest < stuck:
        return
    name = max(steps, key=lambda name: steps[name].policy().longest)
    raise _located(
        (name,),
        f"attempts and waits of all steps may add up to {longest:g} s for a record, and after limits.stuck "
        f"({stuck:g} s) the service counts as hung; lower attempts, wait or timeout, or raise limits.stuck",
        steps,
    )


def _located(path: tuple[str, ...], why: str, given: Any) -> ValidationError:
    # Not as a template: the text may have braces.
    detail = InitErrorDetails(
        type=PydanticCustomError("value_error", "{why}", {"why": why}),
        loc=path,
        input=given,
    )
    return ValidationError.from_exception_data("steps", [detail])
