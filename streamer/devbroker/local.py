"""A real Apache Kafka on this machine, of one or several nodes, that can be frozen, killed and restarted."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from pipelines.errors import MissingPackageError
from streamer.devbroker.errors import BrokerError
from streamer.devbroker.jars import KAFKA_VERSION, KafkaJars, Progress
from streamer.devbroker.ports import HOST, ReservedPorts
from streamer.devbroker.program import Program, Started, end, log_tail
from streamer.devbroker.ready import ask_for_coordinator, wait_until_listed
from streamer.devbroker.settings import new_uuid, renumber, server_properties, write_properties
from streamer.guarding import Guard

# One user, small data: only the start counts, so the serial collector and the first compiler only.
_JAVA_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.net.preferIPv4Stack=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
)
_ATTEMPTS = 3


class LocalKafka(Started):
    """Apache Kafka in KRaft mode, one Java process per node, listening on 127.0.0.1 only; no Docker, no installed Java.

    `nodes`: 1, or 3 for replicated topics (default replication 3, min.insync.replicas 2, a dead broker noticed in 3 s).
    `data`: a folder that keeps the topics from start to start; without it a temporary one, removed at the end.
    `port`: the first node's client port (the next nodes have the next numbers); without it free ports.
    `settings`: server properties that replace ours, such as `{"message.max.bytes": "5000000"}`.
    `heap`: a node's Java heap in MiB. `timeout`: seconds to wait for an answer of nodes that run.
    `progress` is called before work that takes long.

        with LocalKafka() as kafka:
            producer = Producer({"bootstrap.servers": kafka.bootstrap})

    The processes end with `stop()`, with the `with` block, and at the latest seconds after this process is gone,
    however it went (see `streamer.guard`). They are in new sessions: Ctrl-C does not reach them.

    Raises `BrokerError` (with the end of the broker's log) or `MissingPackageError` (extra `broker`) from `start()`.
    """

    kind = "jars"

    def __init__(
        self,
        nodes: int = 1,
        data: str | Path | None = None,
        *,
        port: int | None = None,
        settings: Mapping[str, str] | None = None,
        heap: int | None = None,
        timeout: float = 120.0,
        progress: Progress | None = None,
    ) -> None:
        if nodes < 1:
            raise BrokerError(f"a broker of {nodes} nodes was asked for: nodes is 1 or more, usually 1 or 3")
        self.nodes = nodes
        self._keep = Path(data).absolute() if data is not None else None
        self._port = port
        self._settings = {key: str(value) for key, value in (settings or {}).items()}
        self._heap = heap or (512 if nodes == 1 else 384)
        self._timeout = timeout
        self._progress = progress or (lambda text: None)
        self._jars: KafkaJars | None = None
        self._folder: Path | None = None
        self._ports: ReservedPorts | None = None
        self._lock: int | None = None
        self._guard: Guard | None = None
        self._processes: dict[int, Program] = {}

    @property
    def bootstrap(self) -> str:
        """`host:port` of every node, separated by commas: the value for `bootstrap.servers`."""
        if self._ports is None:
            raise BrokerError("this broker is not running: call start() or use it in a with block")
        return ",".join(f"{HOST}:{port}" for port in self._ports.numbers[: self.nodes])

    @property
    def pids(self) -> dict[int, int]:
        """Process id by node number (from 1) of the nodes that run."""
        return {node: process.pid for node, process in self._processes.items() if process.exit_code is None}

    @property
    def folder(self) -> Path | None:
        """Where the nodes keep their data and logs; `None` before the start and, if temporary, after the end."""
        return self._folder

    def describe(self) -> str:
        """A description in one line: its kind, its address, the place of its data."""
        size = "1 node" if self.nodes == 1 else f"{self.nodes} nodes"
        if self._ports is None:
            return f"Apache Kafka {KAFKA_VERSION} ({size}), not running"
        place = f"data in {self._folder}" if self._keep else "data gone when it stops"
        return f"Apache Kafka {KAFKA_VERSION} ({size}) on {self.bootstrap}, {place}"

    def start(self) -> Self:
        """Start every node and return when the cluster answers and lists them all (some 4 s; once, a download)."""
        if self._ports is not None:
            raise BrokerError(f"this broker runs already: {self.describe()}")
        _require_client()
        self._jars = KafkaJars.resolve(self._progress)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._start_once()
                return self
            except BaseException as error:
                self.stop()
                # Only possible where ports cannot be held (see ReservedPorts): another program was quicker.
                in_use = self._port is None and "Address already in use" in str(error)
                if not in_use or attempt == _ATTEMPTS:
                    raise
        raise AssertionError("unreachable")

    def stop(self, grace: float | None = None) -> None:
        """End every node by its process id: SIGTERM, after `grace` seconds SIGKILL. Removes a temporary folder.

        `grace` is 10 s where the data is kept, else 1 s: nodes that stop together wait for each other in vain.
        """
        grace = (10.0 if self._keep else 1.0) if grace is None else grace
        end([self._processes[node] for node in self.pids], grace)
        self._processes.clear()
        self._release()

    def freeze(self, node: int | None = None) -> None:
        """Stop a node (or all) from running without ending it (SIGSTOP): connections stay open, without answers."""
        for each in self._chosen(node):
            self._processes[each].freeze()

    def thaw(self, node: int | None = None) -> None:
        """Let a frozen node (or all) go on (SIGCONT)."""
        for each in self._chosen(node):
            self._processes[each].thaw()

    def kill(self, node: int = 1) -> None:
        """End a node at once (SIGKILL), as a crash would. Its port stays reserved for `restart`."""
        self._running(node).kill()

    def restart(self, node: int = 1) -> None:
        """Start a node again with its old data and port (ending it first if it runs), and wait until it is listed."""
        if self._ports is None or node not in range(1, self.nodes + 1):
            raise BrokerError(f"there is no node {node} to restart in {self.describe()}")
        if node in self.pids:
            end([self._processes[node]], 10.0)
        self._spawn(node)
        self._wait_for({node}, self._timeout)

    def wait(self) -> None:
        """Block until Ctrl-C; raises `BrokerError` with its log when a node ends by itself."""
        while self._ports is not None:
            try:
                self._check_alive(self._processes)
            except BrokerError as error:
                tails = [log_tail(self._log(node)) for node in sorted(self._processes)]
                raise BrokerError("\n".join([f"the local Kafka stopped: {error}", *tails])) from error
            time.sleep(0.2)

    def _start_once(self) -> None:
        self._folder = self._keep or Path(tempfile.mkdtemp(prefix="streamer-kafka-"))
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock_folder()
        # The guard shares the lock on the folder: it must not be free before the nodes have ended.
        assert self._lock is not None
        self._guard = Guard(None if self._keep else self._folder, files=(self._lock,))
        self._ports = ReservedPorts(2 * self.nodes, self._port, self.nodes)
        numbers = range(1, self.nodes + 1)
        formatted = self._is_formatted()
        for node in numbers:
            self._node_folder(node).mkdir(exist_ok=True)
            properties = server_properties(node, self._ports.numbers, self._node_folder(node) / "data", self._settings)
            write_properties(self._node_folder(node) / "server.properties", properties)
        if not formatted:
            self._format()
        for node in numbers:
            self._spawn(node)
        self._wait_for(set(numbers), self._timeout)
        ask_for_coordinator(self.bootstrap)

    def _lock_folder(self) -> None:
        # Kafka's own lock comes too late: its controller has written to the metadata log by then.
        assert self._folder is not None
        self._lock = os.open(self._folder / "lock", os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise BrokerError(f"{self._folder} is in use by another broker: stop that one first") from error

    def _is_formatted(self) -> bool:
        assert self._folder is not None
        count = len(list(self._folder.glob("node-*/data/meta.properties")))
        if count and count != self.nodes:
            raise BrokerError(
                f"{self._folder} holds the data of {count} nodes, not {self.nodes}: "
                f"start it with nodes={count} or choose another folder"
            )
        return bool(count)

    def _format(self) -> None:
        if self._java(1, "kafka.tools.StorageTool", "format", "-t", new_uuid(), "-c").wait():
            raise BrokerError(f"the local Kafka could not prepare its folder\n{log_tail(self._log(1))}")
        # The other nodes' folders differ in two lines only, which is quicker than a Java start for each.
        source = self._node_folder(1) / "data"
        for node in range(2, self.nodes + 1):
            target = self._node_folder(node) / "data"
            shutil.copytree(source, target)
            renumber(target / "meta.properties", node)

    def _spawn(self, node: int) -> None:
        self._processes[node] = self._java(node, "kafka.Kafka")

    def _java(self, node: int, *main: str) -> Program:
        assert self._jars is not None
        assert self._folder is not None
        assert self._guard is not None
        options = (f"-Xmx{self._heap}m", *_JAVA_OPTIONS)
        command = self._jars.command(*main, str(self._node_folder(node) / "server.properties"), options=options)
        return Program(command, folder=self._folder, log=self._log(node), guard=self._guard)

    def _wait_for(self, nodes: set[int], timeout: float) -> None:
        try:
            wait_until_listed(self.bootstrap, nodes, timeout, lambda: self._check_alive(nodes))
        except BrokerError as error:
            tails = [log_tail(self._log(node)) for node in sorted(nodes)]
            raise BrokerError("\n".join([f"the local Kafka did not come up: {error}", *tails])) from error

    def _check_alive(self, nodes: Iterable[int]) -> None:
        for node in nodes:
            code = self._processes[node].exit_code
            if code is not None:
                raise BrokerError(f"node {node} ended with code {code}")

    def _release(self) -> None:
        if self._ports is not None:
            self._ports.close()
            self._ports = None
        if self._folder is not None and self._keep is None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
        if self._guard is not None:
            self._guard.close()
            self._guard = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _chosen(self, node: int | None) -> list[int]:
        return list(self.pids) if node is None else [node] if self._running(node) else []

    def _running(self, node: int) -> Program:
        process = self._processes.get(node)
        if process is None or process.exit_code is not None:
            raise BrokerError(f"node {node} of the local Kafka does not run; running: {sorted(self.pids) or 'none'}")
        return process

    def _node_folder(self, node: int) -> Path:
        assert self._folder is not None
        return self._folder / f"node-{node}"

    def _log(self, node: int) -> Path:
        return self._node_folder(node) / "kafka.log"


def _require_client() -> None:
    try:
        import confluent_kafka  # noqa: F401
    except ImportError as error:
        raise MissingPackageError("confluent-kafka", "broker", "A local Apache Kafka") from error
