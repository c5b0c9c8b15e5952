"""Dead letters at the control port: who sees and replays them, and what is answered."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pipelines.errors import ConnectorError, StreamerError
from streamer.letters.nosuchletter import NoSuchLetter
from streamer.observe import turns
from tests.streamer.observe.test_commands import BEARER, sent
from tests.streamer.observe.test_control_port import TOKEN, Service, served

__all__ = ["served"]

FAILURES: Mapping[str, Exception] = {
    "gone": NoSuchLetter("there is no dead letter gone"),
    "forged": StreamerError('"payments" is not among the topics of the service\'s source'),
    "refused": ConnectorError("the pictures of a camera can be seen by a service only"),
    "silent": ConnectorError("no broker answers", retriable=True),
}


class Lettered(Service):
    """A service with one dead letter."""

    def __init__(self) -> None:
        super().__init__()
        self.lets = threading.Event()
        self.lets.set()
        self.asked: list[Any] = []

    def letters(self, count: int, deadline: float) -> Mapping[str, Any]:
        """The letter, as soon as the test lets it."""
        self.asked.append(count)
        self.lets.wait(60)
        return {"place": "dead", "letters": [{"id": "a"}], "reason": None, "whole": True}

    def replay(self, letter: str, deadline: float, *, again: bool) -> Mapping[str, Any]:
        """Fails for the names of failures."""
        if letter in FAILURES:
            raise FAILURES[letter]
        self.asked.append((letter, again))
        return {"letter": letter, "topic": "in", "state": "sent"}


def test_letters_are_shown_and_replayed_to_who_has_the_token(served: Any) -> None:
    service = Lettered()
    endpoint = served(service, TOKEN)
    listed = {"service": "one", "place": "dead", "letters": [{"id": "a"}], "reason": None, "whole": True}
    assert sent(endpoint, "/letters", BEARER, "GET") == (200, listed)
    assert sent(endpoint, "/letters?last=3&service=one", BEARER, "GET") == (200, listed)
    done = {"service": "one", "letter": "0-1-ab/c", "topic": "in", "state": "sent"}
    assert sent(endpoint, "/letters/0-1-ab%2Fc/replay", BEARER) == (200, done)
    assert sent(endpoint, "/letters/b/replay", BEARER, body='{"again": true}')[0] == 200
    assert service.asked == [20, 3, ("0-1-ab/c", False), ("b", True)]


@pytest.mark.parametrize(
    ("path", "headers", "method", "status", "why"),
    [
        ("/letters", {}, "GET", 401, "Authorization: Bearer TOKEN"),
        ("/letters/a/replay", {}, "POST", 401, "Authorization: Bearer TOKEN"),
        ("/letters/a/replay", {**BEARER, "Origin": "http://evil.example"}, "POST", 403, "control.hosts"),
        ("/letters/a/replay", BEARER, "GET", 405, "send it as POST"),
        ("/letters", BEARER, "POST", 405, "POST /letters/ID/replay"),
        ("/letters/a/burn", BEARER, "POST", 404, "POST /letters/ID/replay"),
        ("/letters?last=0", BEARER, "GET", 400, "a number from 1 to 50"),
        ("/letters?last=51", BEARER, "GET", 400, "a number from 1 to 50"),
        ("/letters?service=two", BEARER, "GET", 404, 'there is no service "two" here; there are one'),
        ("/letters/gone/replay", BEARER, "POST", 404, "there is no dead letter gone"),
        ("/letters/forged/replay", BEARER, "POST", 409, '"payments" is not among the topics'),
        ("/letters/refused/replay", BEARER, "POST", 409, "pictures of a camera"),
        ("/letters/silent/replay", BEARER, "POST", 503, "no broker answers"),
    ],
)
def test_a_request_that_is_refused_says_what_to_do(
    served: Any, path: str, headers: Mapping[str, Any], method: str, status: int, why: str
) -> None:
    service = Lettered()
    got, answer = sent(served(service, TOKEN), path, headers, method)
    assert (got, why in answer["error"], service.asked) == (status, True, []), answer


@pytest.mark.parametrize("body", ["{", "[]", '{"again": 1}', '{"again": true, "to": "payments"}'])
def test_a_body_that_is_not_understood_replays_nothing(served: Any, body: str) -> None:
    service = Lettered()
    status, answer = sent(served(service, TOKEN), "/letters/a/replay", BEARER, body=body)
    assert (status, '{"again": true}' in answer["error"], service.asked) == (400, True, [])


def test_without_a_configured_token_nobody_sees_letters(served: Any) -> None:
    service = Lettered()
    endpoint = served(service)
    for path, method in (("/letters", "GET"), ("/letters/a/replay", "POST")):
        status, answer = sent(endpoint, path, BEARER, method)
        assert (status, "set control.token" in answer["error"], service.asked) == (403, True, [])


def test_a_bus_that_hangs_holds_up_no_other_answer_and_no_crowd_waits_for_it(
    served: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamer.observe.letters.PATIENCE", 1.0)
    monkeypatch.setattr(turns, "_MOST", 2)
    service = Lettered()
    service.lets.clear()
    endpoint = served(service, TOKEN)
    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(sent, endpoint, "/letters", BEARER, "GET") for _ in range(3)]
        assert sent(endpoint, "/live", method="GET")[0] == 200
        errors = sorted(answer["error"] for status, answer in (each.result() for each in asked) if status == 503)
    assert [error.partition(";")[0] for error in errors] == [
        *["no answer within 1 s"] * 2,
        "others wait for such answers",
    ]
    service.lets.set()
    assert sent(endpoint, "/letters", BEARER, "GET")[0] == 200
    # The one that had to wait was not begun any more.
    assert service.asked == [20, 20]
