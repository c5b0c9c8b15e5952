"""The page of the sink `view` in a real browser."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from connectors.memory import MemoryLiveSource
from connectors.view.pages import SCRIPTS
from pipelines import Data
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
            "gate": {
                "state": "backoff",
                "reason": "<b>the camera ended the stream</b>",
                "last_picture_seconds": 90.0,
            },
            "yard": {
                "state": "connecting",
                "reason": "connection refused",
                "last_picture_seconds": None,
            },
            "dock": {"state": "live", "reason": None, "last_picture_seconds": 0.1},
        }


def test_cameras_that_give_no_picture_are_named_with_what_they_do(viewing: Any, page: Any) -> None:
    sink = viewing()
    sink.attach([Yard()])
    deliver(sink, result("dock", 50))
    page.goto(f"http://localhost:{sink.address[1]}/")
    page.wait_for_function("() => document.querySelectorAll('.trouble:not([hidden])').length >= 2")
    shown = dict(
        page.eval_on_selector_all(
            "figure", "all => all.map(one => [one.querySelector('strong').textContent, one.textContent])"
        )
    )
    assert list(shown) == ["dock", "gate", "yard"]
    assert re.search(
        r"Away, trying againno picture since [^,]+, for 90 s<b>the camera ended the stream</b>", shown["gate"]
    )
    assert "backoff" in shown["gate"]
    assert re.search(r"no picture yet, for \d+ sconnection refused", shown["yard"])
    assert "backoff" not in shown["dock"]
    page.wait_for_function(
        "() => /3 cameras, [23] without pictures/.test(document.querySelector('#state').textContent)"
    )


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
        assert page.text_content("#state") == "live · 8 cameras"
        assert sink.board.watchers == 1
    finally:
        stop.set()
        feeding.join()
    assert names == [f"camera {camera}" for camera in range(8)]
    assert boxes == ["2"] * 8
    assert people == [str(camera) for camera in range(8)]
    assert labels[0] == "camera 0: face 2"
    names = [url.rpartition("/")[2].partition("?")[0] for url in requests]
    assert names[:2] == ["", "view.css"]
    assert set(names[2:]) == {*SCRIPTS, "stream"}
    assert len({url.partition("/")[0] for url in requests}) == 1
    assert errors == []


_SHOWN = """(wanted) => {
  const shown = [...document.querySelectorAll('figure')].filter((one) => one.offsetWidth).map((one) => ({
    name: one.querySelector('strong').textContent, x: one.offsetLeft, y: one.offsetTop, width: one.offsetWidth,
    height: one.offsetHeight }));
  const [first, second] = shown;
  switch (wanted) {
    case 'beside one another': return shown.length === 2 && first.y === second.y && first.width > 550;
    case 'below one another': return shown.length === 2 && first.x === second.x && first.width > 350;
    default: return shown.length === 1 && first.name === wanted && first.height > 600;
  }
}"""


def test_pictures_use_the_room_and_one_can_be_enlarged_by_a_click_or_a_key(viewing: Any, page: Any) -> None:
    sink = viewing()
    page.set_viewport_size({"width": 1280, "height": 720})
    deliver(sink, result("dock", 30, wide=320))
    page.goto(f"http://localhost:{sink.address[1]}/")
    page.wait_for_function(_SHOWN, arg="dock")
    deliver(sink, result("gate", 40, wide=320))
    page.wait_for_function(_SHOWN, arg="beside one another")
    stage = page.locator("figure .stage").first
    stage.click()
    page.wait_for_function(_SHOWN, arg="dock")
    page.keyboard.press("Escape")
    page.wait_for_function(_SHOWN, arg="beside one another")
    stage.press("Enter")
    page.wait_for_function(_SHOWN, arg="dock")
    for name in ("gate", "dock"):
        page.keyboard.press("ArrowRight")
        page.wait_for_function(_SHOWN, arg=name)
    page.click("#back")
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function(_SHOWN, arg="below one another")
    assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_events_zones_and_counts_stand_beside_the_pictures(viewing: Any, page: Any) -> None:
    sink = viewing(fps=60)
    counts = Data({"hall": Data({"inside": 2, "entered": 5, "left": 3})})
    sink._places += [{"name": "hall", "kind": "zone", "points": [[0.5, 0.5], [1, 0.5], [1, 1]], "cameras": ["gate"]}]
    event = Data({"event": "enter", "place": "<img src=x>", "id": 7, "label": "person"})
    deliver(sink, result("gate", 40, wide=320, counts=counts, events=[event]))
    page.goto(f"http://localhost:{sink.address[1]}/")
    page.wait_for_selector("#event-list .picture img")
    assert page.locator("#event-list strong").all_text_contents() == ["person 7 entered <img src=x>"]
    assert page.locator(".places li").all_text_contents() == ["hall: 2 inside, 5 entered, 3 left"]
    assert page.locator(".objects li").all_text_contents() == ["1 face 90%"]
    # The zone is filled: a picture of one shade is brighter inside.
    shades = """() => [[0.9, 0.6], [0.3, 0.9]].map(([x, y]) => {
        const canvas = document.querySelector('canvas');
        return canvas.getContext('2d').getImageData(x * canvas.width, y * canvas.height, 1, 1).data[0]; })"""
    inside, outside = page.evaluate(shades)
    assert inside > outside + 10
    page.click("#event-list button")
    page.wait_for_selector("dialog[open] img")
    assert page.get_attribute("dialog img", "alt") == "gate: person 7 entered <img src=x>"
    page.keyboard.press("Escape")
    page.wait_for_selector("dialog", state="hidden")
    page.uncheck("#events-shown", force=True)
    page.wait_for_selector("#events", state="hidden")


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
    page.uncheck("#boxes", force=True)
    deadline = time.monotonic() + 60
    while page.evaluate(brightest) > 20:
        assert time.monotonic() < deadline, "the boxes are still there"
        deliver(sink, result("gate", 0, wide=320))
        page.wait_for_timeout(50)
