"""The definition of a running service as its control port shows it: the fields that were given, without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipelines.errors import DefinitionError
from streamer.observe.shown import MASK, masked, names_a_secret

if TYPE_CHECKING:
    from streamer.definition.service import Service


def configuration(service: Service) -> dict[str, Any]:
    """The fields of the service as plain data; secrets are stars, by the names of their keys and by their values."""
    fields = service.model_dump(mode="json", exclude={"pipeline"}, exclude_unset=True, serialize_as_any=True)
    pipeline = service.sequence()
    try:
        steps: Any = pipeline.to_dict()
    except DefinitionError:
        # It has a function that has no name in a module.
        steps = repr(pipeline)
    without: dict[str, Any] = _without_secrets({"name": service.name, **fields, "pipeline": steps})
    return without


def _without_secrets(value: Any, key: str = "") -> Any:
    if isinstance(value, Mapping):
        return {str(name): _without_secrets(inner, str(name)) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_secrets(inner, key) for inner in value]
    if value is None or isinstance(value, bool):
        return value
    if names_a_secret(key):
        return MASK
    return masked(value) if isinstance(value, str) else value
