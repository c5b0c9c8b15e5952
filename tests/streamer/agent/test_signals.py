"""Ending on SIGTERM, SIGINT and SIGHUP."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from streamer.agent.signals import stopped_by_signals

pytestmark = pytest.mark.slow

PROGRAM = """
import os, signal
from streamer.agent.signals import stopped_by_signals
before = signal.getsignal(signal.SIGTERM)
stops = []
with stopped_by_signals(lambda: stops.append(1)):
    os.kill(os.getpid(), signal.{first})
    assert stops == [1], stops
    print("stopping", flush=True)
    {second}
assert signal.getsignal(signal.SIGTERM) is before
print("ended")
"""


def run(first: str, second: str) -> subprocess.CompletedProcess[str]:
    code = PROGRAM.replace("{first}", first).replace("{second}", second)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_the_first_signal_asks_to_stop_and_what_was_before_is_back_afterwards(name: str) -> None:
    found = run(name, "pass")
    assert found.stdout.split() == ["stopping", "ended"], found.stderr
    assert found.returncode == 0


def test_a_second_signal_ends_the_process_as_it_would_have_without_us() -> None:
    found = run("SIGTERM", "os.kill(os.getpid(), signal.SIGTERM)")
    assert found.stdout.split() == ["stopping"]
    assert found.returncode == -signal.SIGTERM


def test_further_hangups_change_nothing_as_a_shell_repeats_that_of_its_terminal() -> None:
    found = run("SIGHUP", "os.kill(os.getpid(), signal.SIGHUP)")
    assert found.stdout.split() == ["stopping", "ended"], found.stderr
    assert found.returncode == 0


def test_a_hangup_that_is_ignored_stays_ignored() -> None:
    code = """
import os, signal
signal.signal(signal.SIGHUP, signal.SIG_IGN)
from streamer.agent.signals import stopped_by_signals
stops = []
with stopped_by_signals(lambda: stops.append(1)):
    os.kill(os.getpid(), signal.SIGHUP)
print(stops)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert found.stdout.strip() == "[]", found.stderr


def test_outside_the_main_thread_nothing_happens() -> None:
    handlers = []

    def other() -> None:
        with stopped_by_signals(lambda: None):
            handlers.append(signal.getsignal(signal.SIGTERM))

    before = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert handlers == [before]
