"""Programs that only tests need are got once, whole, whoever asks for them and whatever was cut short before."""

from __future__ import annotations

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from programs import UNUSED, CannotBeHad, kept, run


class Script:
    """A program of two files, of which the second takes a while."""

    folder = "script"
    path = "bin/first"

    def __init__(self, *, fails: bool = False) -> None:
        self.got = 0
        self.fails = fails

    def get(self, folder: Path) -> None:
        self.got += 1
        (folder / "bin").mkdir()
        (folder / self.path).touch()
        time.sleep(0.1)
        if self.fails:
            raise CannotBeHad("the network is gone")
        (folder / "second").touch()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("programs.platformdirs.user_cache_path", lambda name: tmp_path / name)
    return tmp_path / "streamer-tests"


def test_it_is_got_once_though_several_ask_at_the_same_time(cache: Path) -> None:
    script, together = Script(), threading.Barrier(4)

    def ask(_: int) -> Path:
        together.wait(10)
        return kept(script)

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(ask, range(4))) == {cache / "script" / "bin" / "first"}
    assert script.got == 1
    assert (cache / "script" / "second").exists()


def test_one_that_was_cut_short_is_got_again(cache: Path) -> None:
    with pytest.raises(CannotBeHad, match="the network is gone"):
        kept(Script(fails=True))
    assert kept(Script()).exists()
    assert (cache / "script" / "second").exists()


def test_a_command_that_fails_is_told_with_what_it_said() -> None:
    with pytest.raises(CannotBeHad, match="failed: no such version"):
        run(sys.executable, "-c", "raise SystemExit('no such version')")
    with pytest.raises(CannotBeHad, match="there is no program-that-nobody-has on the PATH"):
        run("program-that-nobody-has")


def test_a_command_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("programs.LONGEST", 1.0)
    with pytest.raises(CannotBeHad, match="sleep 60 took longer than 1 s"):
        run("sleep", "60")


def test_what_nobody_has_asked_for_in_a_month_goes_when_something_is_got(cache: Path) -> None:
    old, recent = Script(), Script()
    old.folder, recent.folder = "script-1.0", "script-1.1"
    for script in (old, recent):
        kept(script)
    long_ago = time.time() - UNUSED - 60
    for name in ("script-1.0.lock", "script-1.1.lock"):
        os.utime(cache / name, (long_ago, long_ago))
    kept(recent)
    kept(Script())
    assert sorted(path.name for path in cache.iterdir() if path.is_dir()) == ["script", "script-1.1"]
    assert kept(old).exists()
    assert old.got == 2
