"""`HasCompiledForm`: connectors and codecs with a compiled form, which the service's `hot_path` chooses."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, PrivateAttr

from pipelines.hotpath import HotPath


class HasCompiledForm(BaseModel):
    """Base of the configurations of these connectors and codecs."""

    _hot_path: HotPath = PrivateAttr(default="auto")

    @property
    def hot_path(self) -> HotPath:
        """The `hot_path` of its service; `auto` if that is not known."""
        return self._hot_path

    def with_hot_path(self, hot_path: HotPath) -> Self:
        """The same configuration with this choice."""
        if hot_path == self._hot_path:
            return self
        copy = self.model_copy()
        copy._hot_path = hot_path
        return copy
