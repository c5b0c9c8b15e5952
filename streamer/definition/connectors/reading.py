"""How a mapping in a service file becomes the configuration of a source, a sink or a codec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, ValidationInfo

from connectors.config import ConnectorConfig
from pipelines.errors import DefinitionError
from pipelines.plugins.catalog import Catalog

Config = TypeVar("Config", bound=ConnectorConfig)
Registered = TypeVar("Registered", bound=BaseModel)


def config_class(catalog: Catalog[type[Registered]], data: object) -> type[Registered]:
    """The model that reads this mapping of a service file, by its `type`: a connector's or a codec's.

    Raises:
        DefinitionError: `data` is not a mapping, has no `type`, or its type is unknown.
    """
    if isinstance(data, Mapping) and isinstance(kind := data.get("type"), str):
        return catalog.get(kind)
    known = ", ".join(sorted(catalog.known))
    if not isinstance(data, Mapping):
        raise DefinitionError(f"a mapping with a type is needed; known types are {known}")
    raise DefinitionError(f"type is required; known are {known}")


def configured(catalog: Catalog[type[Config]], value: object, info: ValidationInfo) -> object:
    """The configuration that this mapping is read as; a configuration stays as it is. Raises as `config_class` does."""
    if isinstance(value, ConnectorConfig):
        return value
    return config_class(catalog, value).model_validate(value, context=info.context)
