"""The page of the sink `view` in a real browser."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from connectors.memory import MemoryLiveSource
from tests.connectors.view.conftest import deliver, result


@pytest.fixture
def page(chromium_browser: Any) -> Iterator[Any]:
    opened = chromium_browser.new_page()
    opened.set_default_timeout(60_000)
    yield opened
    opened.close()


def _drawn_in_a_second(page: Any, seconds: float = 2.0) -> float:
    """How often the camera that is drawn least is drawn in a second."""
    counts = "all => all.map(one => Number(one.dataset.drawn))"
    before, began = page.eval_on_selector_all("canvas", counts), time.monotonic()
    page.wait_for_timeout(seconds * 1000)
    after = page.eval_on_selector_all("canvas", counts)
    drawn = [later - earlier for earlier, later in zip(before, after, strict=True)]
    return float(min(drawn)) / (time.monotonic() - began)


class Yard(MemoryLiveSource):
    """A source with one camera that is down and one that has never given a picture."""

    def cameras(self) -> Mapping[str, Any]:
        return {
            "gate": {"state": "backoff", "reason": "the camera ended the stream", "last_picture_seconds": 90.0},
            "yard": {"state": "connecting", "reason": "connection refused", "last_picture_seconds": None},
            "dock": {"state": "live", "reason": None, "last_picture_seconds": 0.1},
        }


def test_cameras_that_give_no_picture_are_named_with_what_they_do(viewing: Any, page: Any) -> None:
    sink = viewing()
    sink.attach([Yard()])
    deliver(sink, result("dock", 50))
    page.goto(f"http://localhost:{sink.address[1]}/")
    page.wait_for_function("() => [...document.querySelectorAll('.rate')].filter((one) => one.textContent).length >= 2")
    shown = dict(
        page.eval_on_selector_all(
            "figure", "all => all.map(one => [one.querySelector('strong').textContent, one.textContent])"
        )
    )
    assert list(shown) == ["dock", "gate", "yard"]
    assert "backoff, last picture 90 s ago" in shown["gate"]
    assert "the camera ended the stream" in shown["gate"]
    assert "connecting, no picture yet" in shown["yard"]
    assert "backoff" not in shown["dock"]


def test_eight_cameras_are_drawn_with_their_boxes_over_one_connection(viewing: Any, page: Any) -> None:
    sink = viewing(fps=10)
    requests: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    stop = threading.Event()

    def cameras() -> None:
        number = 0
        while not stop.wait(0.1):
            number += 1
            for camera in range(8):
                deliver(sink, result(f"camera {camera}", number % 200, boxes=2, wide=160, people=camera))

    feeding = threading.Thread(target=cameras)
    feeding.start()
    try:
        page.goto(f"http://localhost:{sink.address[1]}/")
        page.wait_for_function(
            "() => [...document.querySelectorAll('canvas')].filter((one) => one.dataset.drawn >= 5).length === 8"
        )
        rate = _drawn_in_a_second(page)
        print(f"each camera was drawn {rate:.1f} times a second; 10 were sent")
        # A machine that does other things too may be slow; a page that draws nothing is not.
        assert rate > 0.2
        names = page.eval_on_selector_all("figcaption strong", "all => all.map(one => one.textContent)")
        boxes = page.eval_on_selector_all("canvas", "all => all.map(one => one.dataset.boxes)")
        people = page.eval_on_selector_all("dd", "all => all.map(one => one.textContent)")
        labels = page.eval_on_selector_all("canvas", "all => all.map(one => one.getAttribute('aria-label'))")
        assert page.title() == "yard"
        assert page.text_content("#state") == "live"
    finally:
        stop.set()
        feeding.join()
    assert names == [f"camera {camera}" for camera in range(8)]
    assert boxes == ["2"] * 8
    assert people == [str(camera) for camera in range(8)]
    assert labels[0] == "camera 0: 2 boxes"
    assert [url.rpartition("/")[2] for url in requests] == ["", "view.css", "view.js", "stream"]
    assert errors == []


def test_a_camera_that_shows_nothing_any_more_is_marked_and_the_page_says_when_the_service_ends(
    viewing: Any, page: Any
) -> None:
    sink = viewing()
    deliver(sink, result("gate", 30))
    page.goto(f"http://localhost:{sink.address[1]}/")
    page.wait_for_selector("figure canvas[data-drawn]")
    page.wait_for_selector("figure.silent")
    page.click("#pause")
    assert page.get_attribute("#pause", "aria-pressed") == "true"
    sink.close()
    page.wait_for_selector("#state[data-state=away]")


def test_with_a_token_the_page_shows_pictures_to_who_knows_it(viewing: Any, chromium_browser: Any) -> None:
    sink = viewing(token="a-long-token")
    deliver(sink, result("gate", 30))
    for hash_, selector in (("", "#state[data-state=away]"), ("#token=a-long-token", "canvas[data-drawn]")):
        page = chromium_browser.new_page()
        page.goto(f"http://localhost:{sink.address[1]}/{hash_}")
        page.wait_for_selector(selector, timeout=60_000)
        if not hash_:
            assert "a token is needed" in page.text_content("#state")
        page.close()


def test_boxes_can_be_hidden(viewing: Any, page: Any) -> None:
    sink = viewing(fps=60)
    deliver(sink, result("gate", 0, wide=320))
    page.goto(f"http://localhost:{sink.address[1]}/")
    page.wait_for_selector("canvas[data-drawn]")
    brightest = """() => document.querySelector('canvas').getContext('2d').getImageData(0, 0, 320, 240).data
        .reduce((most, value, at) => at % 4 === 3 ? most : Math.max(most, value), 0)"""
    assert page.evaluate(brightest) > 150
    page.uncheck("#boxes")
    deadline = time.monotonic() + 60
    while page.evaluate(brightest) > 20:
        assert time.monotonic() < deadline, "the boxes are still there"
        deliver(sink, result("gate", 0, wide=320))
        page.wait_for_timeout(50)
