"""Patterns of files: `data/day=*/*.parquet`, with `*`, `?`, `[...]`, `**` for any folders, and `{a,b}` for either."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

_WILD: Final = re.compile(r"[*?\[{]")
_CHOICE: Final = re.compile(r"\{([^{}]*)\}")
_ANY_FOLDERS: Final = "**"
_MOST: Final = 1000
"""How many patterns one with `{a,b}` may stand for."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern whose folders and names are joined by `/`.

    `base` is its fixed part, the folders before the first wildcard; `rest` the parts after it.
    """

    base: str
    rest: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Pattern:
        """This pattern. Of a path without wildcards `rest` is the file's name."""
        parts = text.split("/")
        fixed = next((place for place, part in enumerate(parts) if _WILD.search(part)), len(parts) - 1)
        # What stands before the root of a file system is empty.
        base = "/".join(parts[:fixed]) or ("/" if text.startswith("/") else "")
        return cls(base, tuple(parts[fixed:]))

    @property
    def wild(self) -> bool:
        """Whether it may match several files."""
        return any(_WILD.search(part) for part in self.rest)

    @property
    def is_of_one_folder(self) -> bool:
        """Whether all files that match are in the folder `base` itself."""
        return len(self.rest) == 1 and self.rest[0] != _ANY_FOLDERS

    def matcher(self) -> Callable[[str], bool]:
        """Whether a path below `base`, joined by `/`, is of a file that matches."""
        patterns = [pattern.split("/") for pattern in Pattern("", self.rest).plain()]

        def matches(relative: str) -> bool:
            parts = relative.split("/")
            return not self.skips(relative) and any(_matches(parts, pattern) for pattern in patterns)

        return matches

    def plain(self) -> list[str]:
        """The same as patterns without `{a,b}`, which match it all together. Raises `ValueError` for too many."""
        patterns = ["/".join([self.base.removesuffix("/"), *self.rest]) if self.base else "/".join(self.rest)]
        while any(_CHOICE.search(pattern) for pattern in patterns):
            patterns = [
                pattern[: choice.start()] + each + pattern[choice.end() :]
                for pattern in patterns
                for choice in [_CHOICE.search(pattern)]
                if choice is not None
                for each in choice[1].split(",")
            ]
            if len(patterns) > _MOST:
                raise ValueError(f"it stands for more than {_MOST} patterns")
        return list(dict.fromkeys(patterns))

    def skips(self, relative: str) -> bool:
        """Whether this path below `base` is passed over: a part that a wildcard stands for begins with `.` or `_`.

        So engines name what is no data: `_SUCCESS`, `_errors`, `.part`.
        """
        fixed = {part for part in self.rest if not _WILD.search(part)}
        return any(part.startswith((".", "_")) and part not in fixed for part in relative.split("/"))

    def may_match_below(self, folder: str) -> bool:
        """Whether files below this folder may match; a path below `base`, empty for `base` itself."""
        parts = [part for part in folder.split("/") if part]
        for place, pattern in enumerate(self.rest):
            if pattern == _ANY_FOLDERS or place == len(parts):
                return True
            if not any(fnmatchcase(parts[place], each) for each in Pattern("", (pattern,)).plain()):
                return False
        return False


def _matches(parts: Sequence[str], patterns: Sequence[str]) -> bool:
    if not patterns or not parts:
        return not parts and all(each == _ANY_FOLDERS for each in patterns)
    if patterns[0] == _ANY_FOLDERS:
        return _matches(parts, patterns[1:]) or _matches(parts[1:], patterns)
    return fnmatchcase(parts[0], patterns[0]) and _matches(parts[1:], patterns[1:])
