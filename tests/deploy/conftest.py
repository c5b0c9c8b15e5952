"""Helm, for the tests of the chart."""

from __future__ import annotations

import pytest
from helmchart import Helm
from programs import program


@pytest.fixture(scope="session")
def helm() -> Helm:
    """Helm; without it the test is skipped, and in CI it fails."""
    return Helm(program("helm"))
