"""The `batch` mapping of a pipeline: the batching that its models need, for the services that run it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from pipelines.definitions.document import Document
from pipelines.definitions.validation import Unknown, validated

BATCH_KEY: Final = "batch"
OURS: Final = (None, "soft", "hard", "round")
"""Types whose fields are known here; a plug-in's type has fields of its own."""

_Length = Annotated[float, Field(ge=0)] | str
_Size = Annotated[int, Field(ge=1)] | str


class _Batch(BaseModel):
    """Fields of the `batch` of a service, which says what they mean and checks durations and sizes."""

    model_config = ConfigDict(extra="forbid")

    type: str | None = None
    max_records: Annotated[int, Field(ge=1)] | None = None
    max_wait: _Length | None = None
    max_bytes: _Size | None = None
    max_age: _Length | None = None
    target_latency: _Length | None = None


class _BatchOfPlugin(_Batch):
    model_config = ConfigDict(extra="allow")


def checked_batch(document: Document, unknown: Unknown = "error") -> dict[str, Any]:
    """The fields that are given, as they are written.

    Raises `DefinitionError` for unknown fields and values that no batcher takes.
    """
    given = document.data
    if not isinstance(given, Mapping):
        raise document.error((), "must be a mapping, such as {max_records: 8}")
    model = _Batch if given.get("type") in OURS else _BatchOfPlugin
    read = validated(model, Document(dict(given), document.file, document.place, document.prefix), unknown=unknown)
    return {name: value for name, value in given.items() if value is not None and name in read.model_fields_set}


def batch_schema() -> dict[str, Any]:
    """The JSON schema of the mapping."""
    schema = _Batch.model_json_schema()
    return {"type": "object", "description": "The batching that the models need.", "properties": schema["properties"]}
