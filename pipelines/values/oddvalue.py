"""`OddValue`: a value of a record that no `Data` can hold, on its way through a pipeline."""

from __future__ import annotations

from typing import Any

from pipelines.errors import WireError


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
        """The value as the parser of its format gives it; a new object each time.

        Returns:
            `None`, `bool`, `int`, `float`, `str`, `bytes`, lists and dictionaries.

        Raises:
            WireError: The format has no such values, or the entry is broken.
        """
        read = getattr(self.decoder, "plain", None)
        if read is None:
            raise self.error()
        return read(self.entry)

    def lent(self) -> OddValue:
        """The same value for one caller, which may change the object `handed_out`; itself if it is lent already."""
        if self._source is not None:
            return self
        lent = OddValue(self.entry, self.decoder, self.reason)
        lent._plain, lent._source = self.plain(), self
        return lent

    @property
    def source(self) -> OddValue | None:
        """The value that `lent` was called on; `None` if this one is not lent."""
        return self._source

    @property
    def handed_out(self) -> Any:
        """The plain value handed to user code; the same object on every call, so that `settled` can see changes."""
        return self._plain

    def error(self, key: str | None = None) -> WireError:
        """The error where a value of a `Data` is needed; `key` is that of the value."""
        if key is None or self.reason.startswith((f'key "{key}"', f'key "{key}.', f"{key}: ")):
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
