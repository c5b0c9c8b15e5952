"""The `batch` of a pipeline as the default of the service that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from pipelines.batching import BATCH_KEY
from pipelines.definitions.document import Document
from pipelines.definitions.pipeline import Pipeline
from pipelines.definitions.validation import definition_error
from streamer.batching.registry import settings_class
from streamer.definition.settings import BatcherSettings, BatchSettings

_OF_ALL: Final = ("max_records", "max_bytes")
"""Fields that mean the same for batchers of all types."""
_WAITS: Final = ("max_wait", "target_latency")
"""Fields of which a service has one."""


def with_batch_of(pipeline: Pipeline, service: BatcherSettings, *, perishable: bool) -> BatcherSettings:
    """The settings of a service with those of the pipeline in fields that the service does not set.

    If the service sets another type, or how long records wait, the pipeline's fields that contradict that do not count;
    nor does a target of latency where all sources are `perishable`, whose batches are rounds. Raises `ValueError` if
    the pipeline's fields are wrong.
    """
    meant = dict(pipeline.batch)
    _read(meant)
    written = _written(service)
    if written.get("type", meant.get("type")) != meant.get("type"):
        meant = {name: value for name, value in meant.items() if name in _OF_ALL}
    if written.keys() & set(_WAITS):
        meant = {name: value for name, value in meant.items() if name not in _WAITS}
    if perishable and "type" not in {*meant, *written}:
        meant.pop("target_latency", None)
    fields = {**meant, **written}
    return settings_class(fields).model_validate(fields)


def _read(meant: Mapping[str, Any]) -> None:
    model = settings_class(meant)
    try:
        model.model_validate(meant)
    except ValidationError as error:
        place = Document(dict(meant), prefix=("pipeline", BATCH_KEY))
        raise ValueError(str(definition_error(error, place, model))) from error


def _written(service: BatcherSettings) -> dict[str, Any]:
    written = {name: getattr(service, name) for name in service.model_fields_set}
    # A plug-in's settings made in Python need not set the type.
    return written if isinstance(service, BatchSettings) else {"type": service.type, **written}
