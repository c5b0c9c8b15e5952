"""How many examples hypothesis tries a property with: fewer in `make test-fast`, by the profile `fast`."""

from __future__ import annotations

from hypothesis import settings


def examples(usual: int) -> int:
    """So many where all tests run; where fewer are tried (100 is hypothesis' own number), fewer in proportion."""
    return max(10, usual * settings().max_examples // 100)
