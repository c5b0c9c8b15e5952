"""Which pictures wait, which are dropped, and their timestamps."""

import threading
import time
from collections import Counter
from typing import Any

import av
import numpy as np
import pytest

from connectors.camera.clock import Stamps
from connectors.camera.frame import Facts, Frame
from connectors.camera.health import Health, State
from connectors.camera.rate import Rate
from connectors.camera.upright import Picture
from connectors.camera.waiting import Waiting
from connectors.camera.watch import Watch
from pipelines import Image

IMAGE = Image(np.zeros((2, 2, 3), np.uint8))


def frame(number: int, age: float = 0.0) -> Frame:
    return Frame(IMAGE, 12, Facts(number, 1, 0, 0, None, None), time.monotonic() - age)


def waiting(policy: Any, max_frames: int = 3, max_age: float | None = None) -> tuple[Waiting, Counter[str]]:
    drops: Counter[str] = Counter()
    return Waiting(policy, max_frames, max_age, threading.Condition(), lambda cause, _: drops.update([cause])), drops


def put(found: Waiting, count: int) -> None:
    for number in range(count):
        found.put(frame(number))


def numbers(found: Waiting) -> list[int]:
    return [found.take().facts.number for _ in range(len(found))]


def test_latest_keeps_the_newest_picture_only() -> None:
    found, drops = waiting("latest")
    for number in range(5):
        found.put(frame(number))
    assert numbers(found) == [4]
    assert drops == {"replaced": 4}


def test_fifo_drops_the_oldest_when_too_many_wait() -> None:
    found, drops = waiting("fifo")
    for number in range(5):
        found.put(frame(number))
    assert found.held_bytes == 36
    assert numbers(found) == [2, 3, 4]
    assert drops == {"full": 2}


def test_fifo_drops_what_has_waited_too_long() -> None:
    found, drops = waiting("fifo", max_age=60.0)
    found.put(frame(0, age=100.0))
    found.put(frame(1))
    assert numbers(found) == [1]
    assert drops == {"old": 1}


def test_block_makes_the_reader_wait_and_drops_nothing() -> None:
    found, drops = waiting("block", 2)
    reader = threading.Thread(target=put, args=(found, 6))
    reader.start()
    taken: list[int] = []
    condition = found._arrived
    with condition:
        while len(taken) < 6:
            condition.wait_for(lambda: len(found), 10)
            assert len(found) <= 2
            taken += numbers(found)
    reader.join(10)
    assert taken == list(range(6))
    assert not drops


def test_pictures_of_a_file_are_taken_together() -> None:
    found, _ = waiting("block", 4)
    ready = []
    for number in range(4):
        # As if decoded later than now, so that none has waited for long, however slow this machine is.
        found.put(frame(number, age=-600.0))
        ready.append((len(found), found.ready, found.connection()))
    assert ready == [(1, 0, None), (2, 0, None), (3, 0, None), (4, 4, 1)]
    with found._arrived:
        found.take()
    # Frames that did not fit into one poll do not wait for others again.
    assert found.ready == 3


def test_pictures_of_a_file_that_a_batch_has_no_room_for_wait_for_company_again() -> None:
    found, _ = waiting("block", 4)
    for number in range(4):
        found.put(frame(number, age=-600.0))
    with found._arrived:
        found.take()
        found.leave()
    assert found.ready == 0
    found.put(frame(4, age=-600.0))
    assert found.ready == 4


def test_a_picture_of_a_file_does_not_wait_for_company_for_long_or_in_vain() -> None:
    slow, _ = waiting("block", 4)
    slow.put(frame(0, age=1.0))
    assert slow.ready == 1
    ended, _ = waiting("block", 4)
    ended.put(frame(0, age=-600.0))
    assert ended.ready == 0
    ended.last = True
    assert ended.ready == 1


def test_closing_frees_a_reader_that_waits_and_counts_what_nobody_took() -> None:
    found, drops = waiting("block", 2)
    reader = threading.Thread(target=put, args=(found, 4))
    reader.start()
    with found._arrived:
        found._arrived.wait_for(lambda: found.full, 10)
        found.close()
    reader.join(10)
    assert not reader.is_alive()
    assert drops == {"closed": 4}


@pytest.mark.parametrize(("camera", "wanted", "seconds"), [(30, 5, 10), (29.9, 10, 10), (15, 15, 4), (25, 30, 4)])
def test_so_many_pictures_a_second_are_chosen_whatever_the_cameras_rate_is(
    camera: float, wanted: float, seconds: int
) -> None:
    rate = Rate(wanted)
    chosen = sum(rate.wants(number / camera) for number in range(int(camera * seconds)))
    assert chosen == pytest.approx(min(camera, wanted) * seconds, abs=2)


def test_bursts_and_jumps_of_time_do_not_upset_the_rate() -> None:
    rate = Rate(5)
    # A camera that pauses for its key frames and then hurries gives pictures with times as even as before.
    assert [rate.wants(at / 10) for at in range(8)] == [True, False] * 4
    assert rate.wants(-1000.0)
    assert not rate.wants(-999.95)
    assert rate.wants(5000.0)
    late = Rate(5)
    assert late.wants(0.0)
    assert late.wants(1.5)
    # Missing pictures are not made up for by the following ones.
    assert [late.wants(1.5 + at / 100) for at in range(1, 10)].count(True) <= 1


def picture(**fields: Any) -> Picture:
    return Picture(**{"frame": av.VideoFrame(16, 16), "seconds": None, "clock": None, "receipt": 1000.0, **fields})


def test_the_cameras_clock_dates_a_picture_if_it_can_be_believed() -> None:
    health = Health(5.0)
    stamps = Stamps(health, 5.0, live=True)
    assert stamps.of(picture(clock=999.9), None) == 999_900
    assert health.clock_believed is True
    assert health.skew == pytest.approx(0.1)
    # A clock that was never set.
    assert stamps.of(picture(clock=3.0, receipt=1000.2), None) == 1_000_200
    assert health.clock_believed is False
    assert stamps.of(picture(receipt=1001.0), None) == 1_001_000
    # Time never goes back, or tracking would fail.
    assert stamps.of(picture(clock=1000.5, receipt=1001.1), None) == 1_001_000


def test_a_file_has_the_times_of_its_pictures_however_fast_it_is_read() -> None:
    stamps = Stamps(Health(0.0), 5.0, live=False)
    first = stamps.of(picture(seconds=10.0), 10.0)
    assert stamps.of(picture(seconds=12.5), 12.5) == pytest.approx(first + 2500, abs=1)


def shown(level: int) -> av.VideoFrame:
    return av.VideoFrame.from_ndarray(np.full((16, 24, 3), level, np.uint8), format="bgr24").reformat(format="yuv420p")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time that `Watch` sees."""
    now = [1000.0]
    monkeypatch.setattr("connectors.camera.watch.time", type("Time", (), {"monotonic": staticmethod(lambda: now[0])}))
    return now


def test_a_picture_that_stays_the_same_is_a_stall(clock: list[float]) -> None:
    watch = Watch(stall=5.0, frozen=10.0)
    troubles = []
    for second in range(15):
        clock[0] += 1.0
        troubles.append(watch.picture(shown(40 if second > 2 else second)))
    assert troubles.index(next(filter(None, troubles))) in (12, 13)
    assert "has not changed in any pixel for 10 s" in str(next(filter(None, troubles)))


def test_a_picture_that_changes_now_and_then_is_none(clock: list[float]) -> None:
    watch = Watch(stall=5.0, frozen=10.0)
    for second in range(60):
        clock[0] += 1.0
        assert watch.picture(shown(second // 5)) is None


@pytest.mark.parametrize("kind", ["yuv420p", "yuv420p10le", "nv12", "bgr24", "yuyv422", "gray", "gray10le"])
def test_a_picture_that_changes_at_its_right_edge_only_is_none(clock: list[float], kind: str) -> None:
    watch = Watch(stall=5.0, frozen=10.0)
    for second in range(60):
        clock[0] += 1.0
        pixels = np.full((16, 24, 3), 90, np.uint8)
        pixels[:, 20:] += second // 5
        frame = av.VideoFrame.from_ndarray(pixels, format="bgr24").reformat(format=kind)
        assert watch.picture(frame) is None


def test_a_camera_that_trickles_is_stalled_and_one_that_is_slow_is_not(clock: list[float]) -> None:
    watch = Watch(stall=5.0, frozen=0.0)
    for _ in range(20 * 20):
        clock[0] += 0.05
        assert watch.picture(shown(1)) is None
    assert watch.lasts
    troubles = []
    for _ in range(10):
        clock[0] += 2.0
        troubles.append(watch.picture(shown(1)))
    assert any(trouble and "pictures a second come, usually 20" in trouble for trouble in troubles)
    slow = Watch(stall=5.0, frozen=0.0)
    for _ in range(30):
        clock[0] += 1.0
        assert slow.picture(shown(1)) is None


def test_data_without_pictures_are_a_stall_and_a_first_picture_may_take_longer(clock: list[float]) -> None:
    watch = Watch(stall=5.0, frozen=0.0)
    clock[0] += 15.0
    assert watch.trouble(0) is None
    clock[0] += 6.0
    assert "no picture for 21 s; 3 packets could not be decoded" in str(watch.trouble(3))
    watch.picture(shown(1))
    clock[0] += 4.0
    assert watch.trouble(0) is None
    clock[0] += 2.0
    assert "no picture for 6 s" in str(watch.trouble(0))


def test_a_camera_has_a_grade() -> None:
    health = Health(5.0)
    assert health.grade == "down"
    health.connected(again=False)
    health.picture()
    health.becomes(State.LIVE)
    assert health.grade == "good"
    for count in range(4):
        health.connected(again=True)
        assert health.grade == ("fair" if count < 3 else "poor")
    assert health.as_json()["reconnects_last_hour"] == 4
