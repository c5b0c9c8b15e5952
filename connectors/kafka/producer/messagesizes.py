"""The sizes of messages, as clients of Kafka count them."""

from __future__ import annotations

from typing import Final

import numpy as np

from connectors.blockcolumns import lengths
from connectors.headers import Headers
from connectors.records import Ints, Messages

_OF_HEADER: Final = 10
"""Bytes of the two lengths of a header, at most."""


def message_sizes(messages: Messages, *, headers: bool = True) -> Ints:
    """The bytes of payload, key and, if they are to be counted, headers of each message, `int64 (N,)`."""
    sizes = lengths(messages.values)
    if messages.keys is not None:
        sizes = sizes + lengths(messages.keys)
    if headers and messages.headers is not None:
        sizes = sizes + _header_sizes(Headers.of(messages.headers))
    return sizes


def _header_sizes(headers: Headers) -> Ints:
    each = np.maximum(headers.names.lengths, 0) + np.maximum(headers.values.lengths, 0) + _OF_HEADER
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(each)])
    sizes: Ints = sums[headers.starts + headers.counts] - sums[headers.starts]
    return sizes
