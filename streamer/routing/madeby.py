"""`MadeBy`: which version of the models made each result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from connectors.records import Header
from pipelines.data.batch import Batch
from pipelines.data.rowrange import as_array

if TYPE_CHECKING:
    from streamer.models.choosing import Chosen

VERSION: Final = "streamer-version"
"""The header that names the version of the models that made a result."""
VARIANT: Final = "streamer-variant"
"""The header that names its variant, where a service has several versions open."""


class MadeBy:
    """Knows the version of the results that are being delivered. Owned by the thread that delivers them."""

    def __init__(self) -> None:
        self.label: str | None = None
        """Of all results, where one version runs; `None`: results do not say it."""
        self.variant: str | None = None
        """The name of its variant, where it is one of several; `None`: results do not say it."""
        self._chosen: Sequence[Chosen] = ()

    def chosen(self, chosen: Sequence[Chosen]) -> None:
        """The results that are delivered next are of these calls; empty: of one version."""
        self._chosen = chosen

    def headers(self, batch: Batch) -> Sequence[Sequence[Header]] | None:
        """The headers of each result; `None` where they do not say it."""
        if not self._chosen:
            return None if self.label is None else [_headers(self.label, self.variant)] * batch.size
        made_by = self._of_rows(batch)
        # The same objects for the same version: rows that are alike are merged once.
        headers = {by: _headers(*by) for by in set(made_by)}
        return [headers[by] for by in made_by]

    def labels(self, batch: Batch) -> Sequence[str] | None:
        """The label of the version that made each result; `None`: one made all."""
        return [label for label, _ in self._of_rows(batch)] if self._chosen else None

    def _of_rows(self, batch: Batch) -> Sequence[tuple[str, str]]:
        rows = batch.rows if batch.splits is None else batch.rows[batch.splits[:-1]]
        result: list[tuple[str, str]] = [("", "")] * len(rows)
        for call in self._chosen:
            numbers = as_array(call.rows)
            if not len(numbers):
                continue
            order = None if (np.diff(numbers) >= 0).all() else np.argsort(numbers, kind="stable")
            places = np.minimum(np.searchsorted(numbers, rows, sorter=order), len(numbers) - 1)
            places = places if order is None else order[places]
            here = np.flatnonzero(numbers[places] == rows)
            codes = call.codes if isinstance(call.codes, int) else call.codes[places]
            for at in here.tolist():
                result[at] = call.made_by[codes if isinstance(codes, int) else int(codes[at])]
        return result


def _headers(label: str, variant: str | None) -> Sequence[Header]:
    version = (VERSION, label.encode())
    return (version,) if variant is None else (version, (VARIANT, variant.encode()))
