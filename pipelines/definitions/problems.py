"""`Problems`: joins the errors of several places of a file to one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pipelines.errors import DefinitionError

Part = TypeVar("Part")


class Problems:
    """Gathers the errors of parts that are read one by one, so that the first does not hide the others."""

    def __init__(self) -> None:
        self._errors: list[DefinitionError] = []

    def tried(self, read: Callable[[], Part]) -> Part | None:
        """The return value of `read`; `None` if it raises `DefinitionError`, which is kept."""
        try:
            return read()
        except DefinitionError as error:
            self.add(error)
            return None

    def add(self, error: DefinitionError) -> None:
        """Keep an error, unless all its problems have been reported already."""
        if error.problems:
            self._errors.append(error)

    def check(self) -> None:
        """Raise one `DefinitionError` of all that were kept, a single one unchanged. Without any it does nothing."""
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            raise DefinitionError(*(problem for error in self._errors for problem in error.problems))
