"""Blocks of messages: without some of them, and two blocks as one in the order of their rows."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from connectors.blockcolumns import joined
from connectors.records import Ints, Messages


def without(messages: Messages, rows: Collection[int]) -> Messages:
    """The messages that were not made from any of these rows."""
    hit = np.isin(messages.rows, np.fromiter(rows, np.int64, len(rows)))
    if messages.splits is not None:
        # `np.add.reduceat` gives a wrong sum for a message without parents, so this is a difference of cumulative sums.
        total = np.concatenate([[0], np.cumsum(hit)])
        hit = total[messages.splits[1:]] > total[messages.splits[:-1]]
    return messages.take(np.flatnonzero(~hit)) if hit.any() else messages


def in_row_order(first: Messages, second: Messages) -> Messages:
    """Both blocks as one, ordered by row, so that messages of one key keep their order.

    A message for several records has the place of the last of them.
    """
    if not len(first):
        return second
    if not len(second):
        return first
    return _joined(first, second).take(np.argsort(np.concatenate([_last(first), _last(second)]), kind="stable"))


def _last(messages: Messages) -> Ints:
    if messages.splits is None:
        return messages.rows
    return np.array([messages.parents(at).max(initial=-1) for at in range(len(messages))], np.int64)


def _joined(first: Messages, second: Messages) -> Messages:
    def join(a: Any, b: Any) -> Any:
        if a is None and b is None:
            return None
        return joined([[None] * len(first) if a is None else a, [None] * len(second) if b is None else b])

    stamps = splits = None
    if first.timestamps is not None and second.timestamps is not None:
        stamps = np.concatenate([first.timestamps, second.timestamps])
    if first.splits is not None or second.splits is not None:
        edges, more = _edges(first), _edges(second)
        splits = np.concatenate([edges, more[1:] + edges[-1]])
    return Messages(
        rows=np.concatenate([first.rows, second.rows]),
        values=join(first.values, second.values),
        keys=join(first.keys, second.keys),
        headers=join(first.headers, second.headers),
        timestamps=stamps,
        topics=join(first.topics, second.topics),
        splits=splits,
    )


def _edges(messages: Messages) -> Ints:
    return np.arange(len(messages) + 1, dtype=np.int64) if messages.splits is None else messages.splits
