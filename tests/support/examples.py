"""How many examples hypothesis tries a property with: few in `make test-fast`, many in `make soak`."""

from __future__ import annotations

from hypothesis import settings


def examples(usual: int) -> int:
    """So many where a property without a number has 100, which is hypothesis' own; by other profiles in proportion."""
    return max(10, usual * settings().max_examples // 100)
