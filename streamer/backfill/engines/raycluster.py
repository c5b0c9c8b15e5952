"""`RayCluster`: the cluster of Ray that this process is connected to."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from pipelines.errors import StreamerError
from pipelines.plugins.requirements import Package
from streamer.observe.logs import logger

ADDRESS: Final = "RAY_ADDRESS"
"""The environment variable with the address of a cluster; `local`: one is started."""
_MEMORY: Final = 100 * 2**20
"""Bytes of the store of objects of a cluster that is started here: pieces and outcomes are small."""
_ANSWER: Final = 10.0
"""Seconds in which a cluster answers."""


def check_ray() -> None:
    """Raise `MissingPackageError` if Ray is not installed."""
    Package("ray", "ray").check("--engine ray")


@dataclass(frozen=True, slots=True)
class RayCluster:
    """A connection, which is closed once."""

    ray: Any
    """The module `ray`."""
    ours: bool
    """Whether the connection was made here."""

    @classmethod
    def connected(cls, workers: int | None) -> RayCluster:
        """The cluster that this process is connected to, else that of `RAY_ADDRESS`, else one on this machine, else
        one that is started on it for so many workers (`None`: as many as there are cores).

        Raises `StreamerError` if the cluster of `RAY_ADDRESS` cannot be reached.
        """
        address = os.environ.get(ADDRESS, "auto")
        if address in ("auto", "local"):
            # Read when Ray is imported. What is started here listens on the loopback interface only ...
            os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
            # ... and tells nobody that it runs.
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        import ray

        if ray.is_initialized():
            return cls(ray, False)
        log = logger(engine="ray")
        at_end = signal.getsignal(signal.SIGTERM)
        try:
            if address == "local" or not _connects(ray, address):
                cpus = max(workers or 0, os.cpu_count() or 1)
                ray.init(
                    address="local",
                    num_cpus=cpus,
                    object_store_memory=_MEMORY,
                    include_dashboard=False,
                    logging_level=logging.WARNING,
                )
                log.info("Ray was started on this machine", cpus=cpus)
            else:
                log.info("connected to Ray", address=ray.get_runtime_context().gcs_address)
        finally:
            if threading.current_thread() is threading.main_thread():
                # Ray has set one that ends the process at once.
                signal.signal(signal.SIGTERM, at_end)
        return cls(ray, True)

    @property
    def cpus(self) -> int:
        """How many CPUs the cluster has now, at least 1."""
        return max(1, int(self.ray.cluster_resources().get("CPU", 1)))

    def close(self) -> None:
        """Leave the cluster, which ends if it was started for this connection."""
        if self.ours:
            self.ray.shutdown()


def _connects(ray: Any, address: str) -> bool:
    """Whether there is such a cluster; it is connected then. Raises `StreamerError` if one was named and is not."""
    try:
        if address != "auto":
            _check_answers(address)
        ray.init(address=address, logging_level=logging.WARNING)
    except (OSError, RuntimeError, ValueError) as error:
        if address == "auto":
            return False
        raise StreamerError(f"{ADDRESS} is {address}, and no cluster of Ray answers there: {error}") from error
    return True


def _check_answers(address: str) -> None:
    """Raise `OSError` or `ValueError` if nothing answers there. Ray itself would ask for minutes."""
    parts = urlsplit(address if "://" in address else f"//{address}")
    if not parts.hostname or not parts.port:
        raise ValueError("write HOST:PORT, or ray://HOST:PORT")
    socket.create_connection((parts.hostname, parts.port), _ANSWER).close()
