"""Dead letters at a control port: shown, and sent back to where they came from, to who has its token."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol
from urllib.parse import parse_qs

from connectors.http.exchange import Answer, HttpRequest
from pipelines.errors import ConnectorError, StreamerError
from streamer.letters.nosuchletter import NoSuchLetter
from streamer.observe import commands

PATIENCE: Final = 8.0
"""Seconds within which there is an answer; connections to the port end after ten."""
SHOWN: Final = 20
"""How many letters are shown if the request does not say."""
MOST: Final = 50
"""The most letters that are shown."""


class Lettered(Protocol):
    """A service that has dead letters. Methods connect to its buses, for one thread at a time; `deadline` is a time on
    `time.monotonic`."""

    def letters(self, count: int, deadline: float) -> Mapping[str, Any]:
        """The letters that were written last, at most `count`, as `LetterDesk.newest` gives them."""

    def replay(self, letter: str, deadline: float, *, again: bool) -> Mapping[str, Any]:
        """Send this letter back, as `LetterDesk.replay` does."""


def advice(method: str) -> str:
    """What to do where no answer came in time to a request by this method."""
    slow = "the bus is slow or does not answer"
    return f"{slow}; the letter may have been sent: list them before you try again" if method == "POST" else slow


def is_of_letters(path: str) -> bool:
    """Whether the path is that of dead letters."""
    return path == "/letters" or path.startswith("/letters/")


def forbidden(request: HttpRequest, token: str | None, hosts: Collection[str]) -> Answer | None:
    """The answer to a request that may not see or replay dead letters; `None` to one that may.

    Letters hold what clients have sent, so without a configured token nobody sees them.
    """
    if len(request.parts) != 1:
        return commands.forbidden(request, token, hosts)
    if request.method == "POST":
        return Answer(405, commands.NO_COMMAND.body, headers={"Allow": "GET, HEAD"})
    return commands.unadmitted(request, token, hosts, "dead letters are not shown")


def answered(request: HttpRequest, name: str, service: Lettered, deadline: float) -> Answer:
    """The answer to a request that is not forbidden, for the service of that name."""
    try:
        match request.parts:
            case ["letters"]:
                return commands.answered(200, service=name, **service.letters(_count_in(request.query), deadline))
            case ["letters", letter, "replay"]:
                return commands.answered(
                    200, service=name, **service.replay(letter, deadline, again=_again_in(request.body))
                )
    except _WrongRequest as error:
        return commands.answered(400, error=str(error))
    except NoSuchLetter as error:
        return commands.answered(404, error=str(error))
    except ConnectorError as error:
        return commands.answered(503 if error.retriable else 409, error=str(error))
    except StreamerError as error:
        return commands.answered(409, error=str(error))
    return commands.NO_COMMAND


class _WrongRequest(StreamerError):
    """A request that nobody could answer."""


def _count_in(query: str) -> int:
    given = parse_qs(query).get("last", [str(SHOWN)])[-1]
    if not (given.isascii() and given.isdecimal() and len(given) < 10 and 1 <= int(given) <= MOST):
        raise _WrongRequest(f"last is a number from 1 to {MOST}, the most letters that are shown at once")
    return int(given)


def _again_in(body: bytes) -> bool:
    wrong = 'a letter is replayed without a body, and again with the JSON {"again": true}'
    if not body:
        return False
    try:
        data = json.loads(body)
    except ValueError as error:
        raise _WrongRequest(f"{wrong}; this is none: {error}") from error
    if not isinstance(data, dict) or set(data) != {"again"} or not isinstance(data["again"], bool):
        raise _WrongRequest(wrong)
    again: bool = data["again"]
    return again
