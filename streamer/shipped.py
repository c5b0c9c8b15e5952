"""`ShippedService`: a service on its way to the processes that run it, on this machine or on others."""

from __future__ import annotations

import pickle
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from pipelines.errors import DISTRIBUTION, StreamerError
from streamer.cli.folder import import_from_here
from streamer.definition.service import Service


@dataclass(frozen=True, slots=True)
class ShippedService:
    """A service without the files that its pipeline names: these have to be where it arrives.

    It can be unpickled by another version of streamer, which refuses to read the service in it.
    """

    version: str
    """Of streamer, on the driver."""
    pickled: bytes
    """The service, pickled: modules of its functions may have to be importable before."""
    name: str
    file: str
    """The absolute path of its file, beside which such modules may lie; empty: it was made in Python."""
    allows_code: bool

    @classmethod
    def of(
        cls, service: Service, file: Path | None, dumps: Callable[[Service], bytes] = pickle.dumps
    ) -> ShippedService:
        """A service of this file; `None`: it was made in Python. Raises what `dumps` raises."""
        path = "" if file is None else str(file.absolute())
        return cls(version(DISTRIBUTION), dumps(service), service.name, path, service.allows_code)

    def arrived(self, shipped: Callable[[], Path]) -> Service:
        """The service as this process has its files: where the driver has them, else in the folder `shipped()`.

        Functions of it may be imported from beside its file, and from the working directory. Raises `StreamerError` if
        this process has another version of streamer.
        """
        check_version(self.version)
        import_from_here(*([Path(self.file)] if self.file else []), no_code=not self.allows_code)
        service: Service = pickle.loads(self.pickled)  # noqa: S301 - of this project's driver, as the caller itself is
        base = service.pipeline.base
        if base is None or base.is_dir():
            return service
        return service.model_copy(update={"pipeline": service.pipeline.moved(shipped())})


def check_version(driver: str) -> None:
    """Raise `StreamerError` if this process has another version of streamer than the `driver`."""
    if (here := version(DISTRIBUTION)) != driver:
        raise StreamerError(
            f"the worker on {platform.node()} has {DISTRIBUTION} {here}, and the driver {driver}; install the same "
            f"version for {sys.executable}, or ship one environment to all"
        )


def cannot_be_opened(service: Service, error: Exception, how: str) -> StreamerError:
    """The error of a worker that cannot open this service; `how` says how files are shipped to it."""
    return StreamerError(
        f"service {service.name}: it cannot be opened by the worker on {platform.node()}: {error}. Files of the "
        f"pipeline are looked for in {service.pipeline.base}: put them there on each worker, or ship them {how}"
    )
