"""Containers for the length of a block, where a Docker engine answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pipelines.errors import MissingPackageError
from streamer.devbroker.errors import BrokerError
from streamer.devbroker.jars import Progress

_ENGINE_TIMEOUT = 2


def container_of(image: str, purpose: str, progress: Progress | None) -> Any:
    """A `DockerContainer` of testcontainers, not started yet; `purpose` is for errors, as in "Kafka in ...".

    Raises `BrokerError` when no engine answers within 2 s, `MissingPackageError` without testcontainers (extra
    `broker`).
    """
    try:
        import docker
        from testcontainers.core.container import DockerContainer
    except ImportError as error:
        raise MissingPackageError(error.name or "testcontainers", "broker", purpose) from error
    try:
        engine = docker.from_env(timeout=_ENGINE_TIMEOUT)
        engine.ping()
        engine.close()
    except Exception as error:
        raise BrokerError(
            f"the Docker engine does not answer ({_first_line(error)})", reason="the Docker engine does not answer"
        ) from error
    if progress is not None:
        progress(f"starting {image} in a container (the first time its image is pulled)")
    return DockerContainer(image)


@contextmanager
def running(container: Any, wait: Callable[[], None]) -> Iterator[None]:
    """The container runs for the length of the block; `wait` returns when the program in it answers.

    Raises `BrokerError` if it does not start, or `wait` raises.
    """
    try:
        try:
            container.start()
            wait()
        except Exception as error:
            raise BrokerError(f"{container.image} did not start ({_first_line(error)})") from error
        yield
    finally:
        container.stop()


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
