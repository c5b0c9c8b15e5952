"""`OddValue`: a value of a record that no `Data` can hold, on its way through a pipeline."""

from __future__ import annotations

import copy
from typing import Any, Final

from pipelines.errors import DataError, WireError
from pipelines.values.native import native


class OddValue:
    """A value of no type of `Data`, such as a list of several types, 2**70 or `[1, None]`; it goes out as it came.

    `entry` is the value as its payload has it, and `decoder` the codec's function that cannot decode it, for `reason`.
    Code that reads it gets the plain value that the parser of the format makes of it: `plain`.
    """

    __slots__ = ("_plain", "_source", "decoder", "entry", "reason")

    def __init__(self, entry: Any, decoder: Any, reason: str) -> None:
        self.entry = entry
        self.decoder = decoder
        self.reason = reason
        self._plain: Any = None
        self._source: OddValue | None = None

    def plain(self) -> Any:
        """The value as the parser of its format gives it: `None`, `bool`, `int`, `float`, `str`, `bytes`, lists and
        dictionaries; a new object each time. `WireError` if the format has no such values, or the entry is broken.
        """
        read = getattr(self.decoder, "plain", None)
        if read is None:
            raise self.error()
        return read(self.entry)

    def lent(self) -> OddValue:
        """The same value for one caller, which may change the object `own`; itself if it is lent already."""
        if self._source is not None:
            return self
        lent = OddValue(self.entry, self.decoder, self.reason)
        lent._plain, lent._source = self.plain(), self
        return lent

    @property
    def is_lent(self) -> bool:
        """Whether `lent` gave it."""
        return self._source is not None

    @property
    def own(self) -> Any:
        """`plain` of a value that is lent, each time the same object."""
        return self._plain

    def settled(self) -> Any:
        """The value that was lent, if `own` is unchanged; else the changed one (`as_held`)."""
        if self._source is None:
            return self
        # As texts, for which 1, 1.0 and True differ.
        return self._source if repr(self._plain) == repr(self.plain()) else as_held(self._plain)

    def error(self, key: str | None = None) -> WireError:
        """The error where a value of a `Data` is needed; `key` is that of the value."""
        if key is None or self.reason.startswith((f'key "{key}"', f'key "{key}.')):
            return WireError(self.reason)
        return WireError(f'key "{key}": {self.reason}')

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OddValue) and repr(self) == repr(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        try:
            return repr(self.plain() if self._source is None else self._plain)
        except WireError:
            return f"<{self.reason}>"


def as_held(value: Any) -> Any:
    """`value` as a `Data` keeps it (`native`), or an `OddValue` of plain numbers, texts, lists and dictionaries that
    have no type of `Data`. Raises as `native` does for anything else.
    """
    try:
        return native(value)
    except DataError as error:
        if value is None or not _is_plain(value):
            raise
        return OddValue(copy.deepcopy(value), _AS_IT_IS, str(error))


class _AsItIs:
    """The "decoder" of values that did not come in as bytes."""

    def plain(self, entry: Any) -> Any:
        return copy.deepcopy(entry)


_AS_IT_IS: Final = _AsItIs()
_PLAIN: Final = (str, int, float, bytes, type(None))


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(one) for key, one in value.items())
    # Numbers of numpy, which are subclasses, are written by few formats.
    return type(value) is bool or type(value) in _PLAIN
