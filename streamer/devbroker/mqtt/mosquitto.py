"""A mosquitto on this machine that can be frozen, killed and restarted."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from streamer.devbroker.errors import BrokerError
from streamer.devbroker.ports import HOST, ReservedPorts
from streamer.devbroker.program import LOG_TAIL, Program, Started, end
from streamer.guarding import Guard

_SYSTEM_FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin")
"""Folders where packages install mosquitto and that are not on every user's PATH."""
_START_TIMEOUT = 30.0

DEVELOPMENT: Mapping[str, str] = {
    "allow_anonymous": "true",
    # Without it a small message waits until the client has acknowledged the packet before, up to 40 ms.
    "set_tcp_nodelay": "true",
    # Its default of 1000 drops later messages for a client that is away, though they were acknowledged to the sender.
    "max_queued_messages": "100000",
}
"""Default settings of mosquitto here."""

Settings = Mapping[str, str | Sequence[str]]
"""Lines of mosquitto.conf by their keys; several values make several lines."""


def find_mosquitto() -> str | None:
    """The path of the installed mosquitto, also where PATH does not lead to it; `None` without one."""
    folders = os.pathsep.join((os.environ.get("PATH", os.defpath), *_SYSTEM_FOLDERS))
    return shutil.which("mosquitto", path=folders)


class LocalMosquitto(Started):
    """One mosquitto process, listening on 127.0.0.1 only.

    `data`: a folder that keeps sessions and retained messages from start to start; without it a temporary one, which
    outlives `kill` and `restart` and is removed at the end. Either way the store is written every second.
    `port`: without it a free one. `settings`: lines of mosquitto.conf that come after the listener's, such as
    `{"max_inflight_messages": "20", "certfile": "server.pem"}`; they replace ours (`DEVELOPMENT`).

        with LocalMosquitto() as broker:
            client.connect(broker.host, broker.port)

    The process ends with `stop()`, with the `with` block, and at the latest seconds after this process is gone. It is
    in a new session: Ctrl-C does not reach it.

    Raises `BrokerError` from `start()` where mosquitto is not installed or does not come up (with the end of its log).
    """

    host = HOST

    def __init__(
        self,
        data: str | Path | None = None,
        *,
        port: int | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._keep = Path(data).absolute() if data is not None else None
        self._port = port
        self._settings = {**DEVELOPMENT, **(settings or {})}
        self._program = ""
        self._folder: Path | None = None
        self._ports: ReservedPorts | None = None
        self._guard: Guard | None = None
        self._process: Program | None = None

    @property
    def port(self) -> int:
        """The port it listens on."""
        if self._ports is None:
            raise BrokerError("this mosquitto is not running: call start() or use it in a with block")
        return self._ports.numbers[0]

    @property
    def url(self) -> str:
        """Where clients find it: `mqtt://127.0.0.1:PORT`, or `mqtts:` where its settings name a certificate."""
        return f"{'mqtts' if 'certfile' in self._settings else 'mqtt'}://{self.host}:{self.port}"

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.pid if self._process is not None and self._process.exit_code is None else None

    @property
    def folder(self) -> Path:
        """Where its configuration, its store `mosquitto.db` and its log are."""
        if self._folder is None:
            raise BrokerError("this mosquitto is not running: call start() or use it in a with block")
        return self._folder

    @property
    def log(self) -> str:
        """Its log so far."""
        path = self._log
        return path.read_text(encoding="utf-8", errors="replace") if path is not None and path.exists() else ""

    def describe(self) -> str:
        """A description in one line: its kind, its address, the place of its data."""
        if self._ports is None:
            return "mosquitto, not running"
        place = f"sessions in {self._folder}" if self._keep else "sessions gone when it stops"
        return f"mosquitto on {self.url}, {place}"

    def start(self) -> Self:
        """Start it and return when it takes connections (some 50 ms)."""
        if self._ports is not None:
            raise BrokerError(f"this broker runs already: {self.describe()}")
        program = find_mosquitto()
        if program is None:
            raise BrokerError(
                "mosquitto is not installed: apt-get install mosquitto (Debian, Ubuntu), brew install mosquitto (macOS)"
            )
        self._program = program
        try:
            self._folder = self._keep or Path(tempfile.mkdtemp(prefix="streamer-mosquitto-"))
            self._folder.mkdir(parents=True, exist_ok=True)
            self._guard = Guard(None if self._keep else self._folder)
            self._ports = ReservedPorts(1, self._port or None, 1)
            self._write_configuration(self._folder)
            self._spawn()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, grace: float = 5.0) -> None:
        """End it by its process id: SIGTERM, after `grace` seconds SIGKILL. Removes a temporary folder."""
        if self._process is not None:
            end([self._process], grace)
            self._process = None
        if self._ports is not None:
            self._ports.close()
            self._ports = None
        if self._guard is not None:
            self._guard.close()
            self._guard = None
        if self._folder is not None and self._keep is None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = None

    def freeze(self) -> None:
        """Stop it from running without ending it (SIGSTOP): connections stay open, without answers."""
        self._running().freeze()

    def thaw(self) -> None:
        """Let the frozen broker go on (SIGCONT)."""
        self._running().thaw()

    def kill(self) -> None:
        """End it at once (SIGKILL), as a crash would. Its port stays reserved for `restart`."""
        self._running().kill()

    def restart(self) -> None:
        """Start it again with its store and port, ending it first if it runs."""
        if self._ports is None:
            raise BrokerError("this mosquitto was never started, so it cannot be restarted")
        if self._process is not None:
            end([self._process], 5.0)
        self._spawn()

    def wait(self) -> None:
        """Block until Ctrl-C; raises `BrokerError` with its log when it ends by itself."""
        while self._ports is not None:
            self._check_alive()
            time.sleep(0.2)

    def _write_configuration(self, folder: Path) -> None:
        common = {"persistence": "true", "persistence_location": f"{folder}/", "autosave_interval": "1"}
        if os.geteuid() == 0:
            # Else it would switch to a user without the right to write into this folder.
            common["user"] = "root"
        lines = [f"listener {self.port} {HOST}", "log_dest stderr"]
        for key, value in {**common, **self._settings}.items():
            lines += [f"{key} {item}" for item in ([value] if isinstance(value, str) else value)]
        (folder / "mosquitto.conf").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _spawn(self) -> None:
        assert self._folder is not None
        assert self._guard is not None
        command = [self._program, "-c", str(self._folder / "mosquitto.conf")]
        log = self._folder / "mosquitto.log"
        self._process = Program(command, folder=self._folder, log=log, guard=self._guard)
        deadline = time.monotonic() + _START_TIMEOUT
        while not self._accepts():
            self._check_alive()
            if time.monotonic() > deadline:
                raise BrokerError(f"mosquitto did not answer on {self.url} within {_START_TIMEOUT:g} s{self._tail()}")
            time.sleep(0.01)

    def _accepts(self) -> bool:
        try:
            socket.create_connection((HOST, self.port), timeout=1.0).close()
        except OSError:
            return False
        return True

    def _running(self) -> Program:
        if self._process is None or self._process.exit_code is not None:
            raise BrokerError("this mosquitto does not run: call start() or restart() first")
        return self._process

    def _check_alive(self) -> None:
        code = None if self._process is None else self._process.exit_code
        if code is not None:
            raise BrokerError(f"mosquitto ended with code {code}{self._tail()}")

    @property
    def _log(self) -> Path | None:
        return None if self._folder is None else self._folder / "mosquitto.log"

    def _tail(self) -> str:
        text = self.log[-LOG_TAIL:].strip()
        return f"\n--- end of its log ---\n{text}" if text else ""
