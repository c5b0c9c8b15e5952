"""`HasCompiledForm`: connectors and codecs with a compiled form, which the service's `hot_path` chooses."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ModelWrapValidatorHandler, PrivateAttr, model_validator

from pipelines.hotpath import VARIABLE, HotPath


class HasCompiledForm(BaseModel):
    """Base of the configurations of these connectors and codecs."""

    _hot_path: HotPath | None = PrivateAttr(default=None)

    @property
    def hot_path(self) -> HotPath:
        """The `hot_path` of its service; `auto` if that is not known."""
        return self._hot_path or "auto"

    def with_hot_path(self, hot_path: HotPath) -> Self:
        """The same configuration with this choice, unless it has its own, from a file for an earlier version."""
        if self._hot_path is not None or hot_path == "auto":
            return self
        copy = self.model_copy()
        copy._hot_path = hot_path
        return copy

    @model_validator(mode="wrap")
    @classmethod
    def _choice_of_its_own(cls, fields: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Earlier versions had the field `hot_path` here."""
        if not isinstance(fields, Mapping) or "hot_path" not in fields:
            return handler(fields)
        choice = _Choice.model_validate({"hot_path": fields["hot_path"]}).hot_path
        warnings.warn(
            f"hot_path is not a field of connectors and codecs any more: write hot_path: {choice} once, for the whole "
            f"service, beside its source and sink, or set {VARIABLE}={choice}",
            FutureWarning,
            stacklevel=2,
        )
        made = handler({name: value for name, value in fields.items() if name != "hot_path"})
        made._hot_path = choice
        return made


class _Choice(BaseModel):
    hot_path: HotPath
