"""Helm, for the tests of the chart."""

from __future__ import annotations

import os

import pytest
from helmchart import Helm, find_helm


@pytest.fixture(scope="session")
def helm() -> Helm:
    """Helm; without it the test is skipped, and in CI it fails."""
    if (program := find_helm()) is not None:
        return Helm(program)
    reason = "helm is not installed: `make helm` builds it where Go is, or https://helm.sh/docs/intro/install"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
