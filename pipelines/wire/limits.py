"""How much one message may ask of its reader."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pipelines.errors import WireError
from pipelines.wire.varint import varint

INNER_KEYS: Final = 10
"""How many times as many keys as one `Data` all those inside a value may have together."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds that a reader checks before it decodes a message. A message beyond one is a `WireError`."""

    max_bytes: int = 64 * 1024 * 1024
    """Length of the whole message, in bytes."""
    max_depth: int = 32
    """Levels of nesting: a `Data` in a `Data`, a list in a list, metadata."""
    max_elements: int = 16_000_000
    """Entries, list elements and coordinates of the whole message, counted together.

    Elements of arrays do not count: their bytes must be in the message.
    """

    max_keys: int = 10_000
    """Keys of one `Data`, its metadata's included: of the message itself, and of each `Data` inside it.

    A message with more is refused before it is read to its end. There all its fields count, also a key that is sent
    twice, and fields that this version does not know. All the `Data` inside one value (in JSON: inside the message)
    may have `INNER_KEYS` times as many keys together, each `Data` counted as one more.
    """

    def check_bytes(self, size: int) -> None:
        """Raise `WireError` if a message of `size` bytes is too long."""
        if size > self.max_bytes:
            raise WireError(f"a message of {size} bytes; the limit is {self.max_bytes} (max_bytes)")

    def check_keys(self, keys: int) -> None:
        """Raise `WireError` if a `Data` of so many keys has too many."""
        if keys > self.max_keys:
            raise WireError(
                f"a Data of more than {self.max_keys} keys (max_keys); send values that belong together as one list or "
                "array, or raise max_keys of the codec"
            )

    def check_inner_keys(self, keys: int) -> None:
        """Raise `WireError` if so many keys are too many for all `Data` inside a value together."""
        if keys > INNER_KEYS * self.max_keys:
            raise WireError(
                f"more than {INNER_KEYS * self.max_keys} keys in the Data inside of it ({INNER_KEYS} times max_keys); "
                "send values that belong together as one list or array, or raise max_keys of the codec"
            )

    def check_fields(self, message: bytes) -> None:
        """Raise `WireError` if a protobuf message has too many fields to be a `Data`."""
        if len(message) > self.max_keys and has_more_fields(message, self.max_keys):
            self.check_keys(self.max_keys + 1)

    def check_depth(self, depth: int) -> None:
        """Raise `WireError` if `depth` levels are too many."""
        if depth > self.max_depth:
            raise WireError(f"values nested more than {self.max_depth} levels deep (max_depth)")

    def check_elements(self, elements: int) -> None:
        """Raise `WireError` if `elements` are too many."""
        if elements > self.max_elements:
            raise WireError(f"a message of more than {self.max_elements} elements (max_elements)")


DEFAULT_LIMITS = Limits()


def has_more_fields(message: bytes, most: int) -> bool:
    """Whether a protobuf message has more than `most` fields, counted without a parser until there is one more.

    Of a broken message the fields before the break count, and bytes after it that look like fields.
    """
    at, end, count = 0, len(message), 0
    try:
        while at < end and count <= most:
            tag, at = varint(message, at)
            count += 1
            kind = tag & 7
            if kind == _VARINT:
                _, at = varint(message, at)
            elif kind == _DELIMITED:
                size, at = varint(message, at)
                at += size
            else:
                # The tags that begin and end a group have no value: the fields in the group count as any other.
                at += _FIXED.get(kind, 0)
    except IndexError:
        pass
    return count > most


# Kinds of fields in protobuf, and the bytes of those of a fixed size.
_VARINT, _DELIMITED = 0, 2
_FIXED = {1: 8, 5: 4}
