"""Which numbers of an array are among a few others: mostly the rows of a batch that failed."""

from __future__ import annotations

import numpy as np

from pipelines.data.columns import Mask, Rows


def among(rows: Rows, few: Rows) -> Mask:
    """For each of `rows` whether it is one of `few`, `bool (N,)`."""
    if (rows[1:] < rows[:-1]).any():
        return np.isin(rows, few)
    # Rows rise as a rule: a search for each of a few takes a tenth of what `np.isin` does.
    found: Mask = np.zeros(len(rows), np.bool_)
    edges = zip(rows.searchsorted(few).tolist(), rows.searchsorted(few, side="right").tolist(), strict=True)
    for start, stop in edges:
        found[start:stop] = True
    return found
