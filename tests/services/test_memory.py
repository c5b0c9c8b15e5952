"""Memory of a service over millions of messages."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from streamer.devbroker import Broker

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_service_takes_no_more_memory_after_five_million_messages(kafka: Broker) -> None:
    command = [sys.executable, "-m", "benchmarks.rss", "--json", "--bootstrap", kafka.bootstrap]
    # Its progress goes to standard error, which is shown.
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=1700, check=True)
    found = json.loads(done.stdout)
    assert found["messages"][-1] == 5_000_000
    assert found["grown"] < 1.1, found
