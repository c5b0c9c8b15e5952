"""The (device, seq) ledger of MQTT services: what a broker took from a publisher, and what a sink got of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

import mqttpublisher

Numbered = tuple[int, int]
"""A message: its device, and its number among those of the device."""


class Publisher:
    """`mqttpublisher` in a process of its own, from the `with` block's begin to `stop` or its end."""

    def __init__(self, port: int, file: Path, rate: int = 4000, topic: str = "proof") -> None:
        self._command = [sys.executable, mqttpublisher.__file__, str(port), str(file), str(rate), topic]
        self._file = file
        self.said = ""

    def __enter__(self) -> Publisher:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), "the publisher did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def stop(self) -> set[Numbered]:
        """End it; what the broker has acknowledged."""
        self.said, _ = self._process.communicate(timeout=120)
        assert self._process.returncode == 0
        found = {(int(device), int(seq)) for device, seq in map(str.split, self._file.read_text().splitlines())}
        assert found, "the broker took nothing"
        return found


def in_file(file: Path) -> Counter[Numbered]:
    """How often each message is in a file of JSON lines; a last line without an end does not count."""
    text = file.read_text() if file.exists() else ""
    return in_payloads(line for line in text.splitlines(keepends=True) if line.endswith("\n"))


def in_payloads(payloads: Iterable[str | bytes | bytearray | None]) -> Counter[Numbered]:
    """How often each message is among these payloads."""
    found = [json.loads(one) for one in payloads if one is not None]
    return Counter((one["device"], one["seq"]) for one in found)


def duplicates(found: Counter[Numbered]) -> int:
    """How many came more often than once."""
    return found.total() - len(found)
