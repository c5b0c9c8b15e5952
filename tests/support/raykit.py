"""Ray, got when the first test asks for it and kept for later, and clusters of it on this machine.

It is 200 MB, and there is none for some systems, so that it is in no environment of developers.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from programs import CannotBeHad, Packages, leave_out

MEMORY = 100 * 2**20
"""Bytes of a cluster's store of objects."""


def environment() -> dict[str, str]:
    """Environment variables with which Ray is imported and tells nobody that it runs.

    If it cannot be had, the test is skipped, or in CI fails.
    """
    try:
        path = Packages("ray", "ray").on_path()
    except CannotBeHad as error:
        leave_out(f"Ray cannot be had: {error}")
    return {
        "PYTHONPATH": path,
        "RAY_USAGE_STATS_ENABLED": "0",
        # What its processes ask each other for; else it is kept in the user's home.
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        # It listens on the loopback interface only.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        # Its workers would be killed where other tests use the memory of the machine.
        "RAY_memory_monitor_refresh_ms": "0",
        # It is busy, too: Ray gives its processes 15 seconds to start.
        "RAY_agent_register_timeout_ms": "120000",
    }


@contextmanager
def surroundings(environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """The variables for a program that starts a cluster, whose files are in a folder that goes with the block."""
    # The paths of its sockets are long, and paths of sockets have to be short.
    folder = tempfile.mkdtemp(prefix="ray-")
    # jsonschema does without what takes seconds to import, and each of Ray's processes imports it.
    (Path(folder) / "rfc3987_syntax.py").write_text("raise ImportError")
    # Its workers know what this folder has, too.
    path = os.pathsep.join([environment["PYTHONPATH"], folder, str(Path(__file__).parent)])
    try:
        yield {**environment, "PYTHONPATH": path, "RAY_TMPDIR": folder}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def cluster(patch: pytest.MonkeyPatch, environment: dict[str, str]) -> Iterator[Any]:
    """The module `ray`, connected to a cluster of two CPUs that ends with the block."""
    with surroundings(environment) as variables:
        for name, value in variables.items():
            patch.setenv(name, value)
        patch.setattr(sys, "path", [*sys.path, environment["PYTHONPATH"].split(os.pathsep)[0]])
        import ray

        options = {"num_cpus": 2, "object_store_memory": MEMORY, "include_dashboard": False, "log_to_driver": False}
        try:
            try:
                ray.init(address="local", **options)
            except Exception:  # noqa: BLE001 - it raises nothing narrower
                # A part of it took more than half a minute to start, which has no setting.
                ray.shutdown()
                ray.init(address="local", **options)
            yield ray
        finally:
            ray.shutdown()


def processes(folder: str) -> list[int]:
    """The processes of clusters whose files are in this folder."""
    return [
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if any(folder in word for word in process.info["cmdline"] or ())
    ]
