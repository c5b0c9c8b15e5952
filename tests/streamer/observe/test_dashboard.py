"""The dashboard in a real browser, and what it reads."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from kafkatopics import write
from waiting import PATIENCE

import pipelines
from connectors.memory.topic import memory_topic
from connectors.message import Message
from pipelines import Data
from streamer.agent.agent import Agent
from streamer.definition.service import Service
from streamer.devbroker import Broker
from streamer.devbroker.ports import ReservedPorts

TOKEN = "a-long-töken"


def checked(data: Data) -> Data:
    if data.get_int64("x") % 10 == 9:
        raise ValueError("nine <b>")
    return Data({"y": 1})


class Running:
    """A service with a control port that other runs of it have, too, and records that come all the time."""

    def __init__(self, name: str) -> None:
        self._ports = ReservedPorts(1)
        self.address = f"127.0.0.1:{self._ports.numbers[0]}"
        self.name = name
        self.topic = memory_topic(f"{name}.in")
        self.agent = self.begun()
        self._stop = threading.Event()
        self._feeding = threading.Thread(target=self._feed)
        self._feeding.start()

    def begun(self) -> Agent:
        service = Service(
            name=self.name,
            source={"type": "memory", "topic": f"{self.name}.in", "name": "line <1>", "codec": "json"},
            pipeline=pipelines.Sequence([checked]),
            sink={"type": "memory", "topic": f"{self.name}.out", "codec": "json"},
            dead_letter={"type": "memory", "topic": f"{self.name}.dead"},
            variants={"careful": {"weight": 20}},
            control={"listen": self.address, "token": TOKEN},
        )
        agent = Agent(service)
        agent.start()
        return agent

    def restart(self) -> None:
        self.agent.stop()
        self.agent.join(60)
        self.agent = self.begun()

    def end(self) -> None:
        self._stop.set()
        self._feeding.join()
        self.agent.stop()
        self.agent.join(60)
        self._ports.close()

    def _feed(self) -> None:
        number = 0
        while not self._stop.wait(0.02):
            self.topic.extend([Message(b'{"x": %d}' % number) for number in range(number, number + 5)])
            number += 5


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    running = Running("fans")
    yield running
    running.end()


def test_events_are_for_who_has_the_token_and_tell_counters(running: Running) -> None:
    url = f"http://{running.address}/events"
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(url, timeout=30)
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {TOKEN}".encode().decode("latin-1")})
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        events: list[dict[str, Any]] = []
        # What the service waits for is known a moment after it began.
        while len(events) < 2 or not events[-1]["lag"]["partitions"]:
            line = answer.readline()
            assert line.startswith(b"data: ")
            assert answer.readline() == b"\n"
            events.append(json.loads(line.removeprefix(b"data: "))["services"]["fans"])
    before, after = events[-2:]
    assert after["service"] == "fans"
    assert after["started"] == before["started"]
    assert after["clock"] > before["clock"]
    assert after["records"]["ok"] >= before["records"]["ok"]
    assert after["ready"] is None
    (source,) = after["sources"]
    assert (source["name"], source["type"], source["state"]) == ("line <1>", "memory", "running")
    assert set(after["stages"]) == {"poll", "decode", "run", "encode", "send"}
    assert len(after["residence"]["counts"]) == len(after["residence"]["bounds"]) + 1
    assert after["lag"]["partitions"][0]["topic"] == "fans.in"


class Pages:
    """Pages in a browser, and what their consoles said."""

    def __init__(self, browser: Any, address: str) -> None:
        self._browser = browser
        self._address = address
        self.complaints: list[str] = []

    def opened(self, width: int = 1280, scheme: str = "light") -> Any:
        page = self._browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.set_default_timeout(1000 * PATIENCE)
        page.on("console", lambda said: self.complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(f"http://{self._address}/")
        page.get_by_label("Token of the control port").fill(TOKEN)
        page.keyboard.press("Enter")
        page.wait_for_selector("#stream:text('live')")
        return page


@pytest.fixture
def pages(running: Running, chromium_browser: Any) -> Pages:
    return Pages(chromium_browser, running.address)


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (390, "dark"), (1280, "light"), (1280, "dark")])
def test_the_page_shows_what_the_service_does_on_a_telephone_and_on_a_screen(
    pages: Pages, width: int, scheme: str
) -> None:
    page = pages.opened(width, scheme)
    page.wait_for_function("() => document.querySelectorAll('#closed tbody tr').length > 0")
    assert page.title() == "fans · streamer"
    assert page.inner_text("#health") == "ready"
    assert page.evaluate("() => document.documentElement.scrollWidth") == width
    dark = page.evaluate("() => getComputedStyle(document.body).color") == "rgb(232, 234, 238)"
    assert dark == (scheme == "dark")
    assert page.inner_text("#errors tbody tr").startswith("0:FUNCTION\tValueError")
    assert "failed records go to: dead_letter" in page.inner_text("#letters")
    last = page.locator("#last tbody tr").first.inner_text()
    assert "fans.in[0]@" in last
    assert "0:FUNCTION: ValueError: nine <b>" in last
    page.get_by_role("button", name="Open dead letters").click()
    page.wait_for_selector("#looked:text('the service fans has no dead_letter in a topic')")
    assert page.locator("#last").is_visible()
    assert page.inner_text("#sources tbody tr td").startswith("line <1> (memory)")
    assert {"stage run", "step 0:FUNCTION"} <= set(page.locator("#times tbody td:first-child").all_inner_texts())
    assert pages.complaints == []
    page.close()


def test_a_source_is_paused_and_resumed_by_keyboard_on_the_page(running: Running, pages: Pages) -> None:
    page = pages.opened()
    page.get_by_role("button", name="Pause line <1>").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#sources td:text('paused')")
    assert running.agent.note() == "source line <1>: paused"
    page.wait_for_selector("#health:text('ready; source line <1>: paused')")
    # It is the same button that says something else now.
    page.keyboard.press("Enter")
    page.wait_for_selector("#sources td:text('running')")
    assert running.agent.note() is None
    assert pages.complaints == []
    page.close()


def test_a_variant_gets_another_weight_on_the_page(running: Running, pages: Pages) -> None:
    page = pages.opened()
    assert page.locator("#variants tbody td:first-child").all_inner_texts() == ["current", "careful"]
    weight = page.get_by_label("Weight of careful")
    assert weight.input_value() == "20"
    weight.fill("45")
    page.keyboard.press("Enter")
    page.wait_for_function("() => newest.fans.variants[1].weight === 45")
    assert running.agent.variants()[1]["weight"] == 45
    page.get_by_label("Weight of current").fill("0")
    weight.fill("0")
    page.keyboard.press("Enter")
    page.wait_for_function("() => newest.fans.variants[1].weight === 0")
    assert page.inner_text("#said") == ""
    page.get_by_label("Weight of current").fill("0")
    page.keyboard.press("Enter")
    page.wait_for_selector("#said:text('all weights would be 0')")
    page.close()


def test_the_page_says_that_it_is_cut_off_and_goes_on_after_a_restart(running: Running, pages: Pages) -> None:
    page = pages.opened()
    begun = page.evaluate("() => newest.fans.started")
    page.evaluate(
        "() => { window.words = new Set(); new MutationObserver(() => words.add(document.querySelector('#stream')"
        ".textContent)).observe(document.querySelector('#stream'), {childList: true}); }"
    )
    running.restart()
    page.wait_for_function("(begun) => newest.fans.started > begun", arg=begun)
    page.wait_for_selector("#stream:text('live')")
    assert any(words.startswith("cut") for words in page.evaluate("() => [...words]"))
    page.close()


def test_a_wrong_token_is_asked_for_again(running: Running, chromium_browser: Any) -> None:
    page = chromium_browser.new_page()
    page.set_default_timeout(1000 * PATIENCE)
    page.goto(f"http://{running.address}/")
    page.get_by_label("Token of the control port").fill("wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("#said:text('this is not the token')")
    page.get_by_label("Token of the control port").fill(TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_selector("#stream:text('live')")
    assert page.inner_text("#said") == ""
    page.close()


HOSTILE = (
    b"""{"x": 1, "y": "</pre><script>document.title = 'owned'</script><img src=x onerror='document.title = 1'>"}"""
)


class Fans:
    """A service on Kafka that takes no record until it is mended."""

    def __init__(self, bootstrap: str, topics: Any) -> None:
        self.mended = False
        self.out = memory_topic("mended.out")
        self._fails = topics(prefix="fans")

        def taken(data: Data) -> Data:
            if not self.mended:
                raise ValueError("too <b>hot")
            return data

        service = Service(
            name="fans",
            source={
                "type": "kafka",
                "bootstrap": bootstrap,
                "topics": self._fails,
                "codec": "json",
                "group": self._fails,
            },
            pipeline=pipelines.Sequence([taken]),
            sink={"type": "memory", "topic": "mended.out", "codec": "json"},
            dead_letter={"type": "kafka", "topic": topics(prefix="dead")},
            control={"listen": "127.0.0.1:0", "token": TOKEN},
        )
        write(bootstrap, self._fails, [HOSTILE, b"\x00\xff" * 3000], key=b"fan 1", headers=[("trace", b"<i>7")])
        self.agent = Agent(service)
        self.agent.start()


@pytest.fixture
def fans(kafka: Broker, topics: Any) -> Iterator[Fans]:
    fans = Fans(kafka.bootstrap, topics)
    yield fans
    fans.agent.stop()
    fans.agent.join(60)


def test_a_dead_letter_is_opened_and_replayed_by_keyboard_and_runs_nothing_that_it_holds(
    fans: Fans, chromium_browser: Any
) -> None:
    pages = Pages(chromium_browser, "{}:{}".format(*fans.agent.endpoint or ()))
    page = pages.opened(390, "dark")
    page.wait_for_function("() => newest.fans.records.dead === 2")
    page.get_by_role("button", name="Open dead letters").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#looked:text('2 of dead')")
    assert page.locator("#kept tbody tr:not(.held)").count() == 2
    row = page.locator("#kept tbody tr", has_text="ValueError: too <b>hot")
    row.get_by_role("button", expanded=False).focus()
    page.keyboard.press("Enter")
    held = page.locator(".held:visible").inner_text()
    for part in ("fan 1", "trace: <i>7", "</pre><script>", "onerror="):
        assert part in held
    binary = page.locator("#kept tbody tr:not(.held)", has_text="decode")
    binary.get_by_role("button", expanded=False).click()
    assert "6,000 bytes, hexadecimal\n00 ff 00" in page.locator(".held:visible", has_text="hexadecimal").inner_text()
    assert page.evaluate("() => document.documentElement.scrollWidth") == 390
    fans.mended = True
    row.get_by_role("button", name="Replay fans").focus()
    page.keyboard.press("Enter")
    row.get_by_text("sent to fans").wait_for()
    assert row.get_by_role("button", name="Replay again").is_visible()
    page.wait_for_function("() => newest.fans.records.ok === 1")
    (message,) = fans.out.messages()
    assert (json.loads(message.value), message.key) == (json.loads(HOSTILE), b"fan 1")
    page.get_by_role("button", name="Look again").click()
    row.get_by_text("replayed").wait_for()
    assert page.title() == "fans · streamer"
    assert pages.complaints == []
    page.close()
