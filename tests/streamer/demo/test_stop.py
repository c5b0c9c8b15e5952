"""Ctrl-C in a demo is answered at once."""

from __future__ import annotations

import threading
import time

import pytest

from streamer.demo.stop import Stop, announced


def test_before_records_are_in_flight_ctrl_c_ends_what_goes_on_and_later_it_does_not() -> None:
    stop = Stop()
    with pytest.raises(KeyboardInterrupt), stop.at_once():
        stop.set()
    stop.set()
    assert stop.is_set()


def test_what_would_take_long_is_not_begun_after_ctrl_c() -> None:
    stop = Stop()
    stop.set()
    with pytest.raises(KeyboardInterrupt), stop.at_once():
        raise AssertionError("the download begins")


def test_ctrl_c_is_announced_while_the_demo_is_still_busy() -> None:
    stop, said = Stop(), threading.Event()
    with announced(stop, said.set):
        time.sleep(0.05)
        assert not said.is_set()
        stop.set()
        assert said.wait(10)


def test_a_demo_that_ends_by_itself_announces_no_stop() -> None:
    said: list[str] = []
    with announced(Stop(), lambda: said.append("stopping")):
        pass
    assert said == []
