"""The commands that a control port takes: what they are, and who may give them."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, urlsplit

from connectors.http.bearer import bears
from connectors.http.exchange import Answer, HttpRequest
from pipelines.errors import StreamerError
from streamer.observe.admission import refusal
from streamer.observe.shown import masked

SHOWN: Final = (
    'POST /sources/NAME/pause, POST /sources/NAME/resume, POST /variants/NAME {"weight": 5}, POST /models/reload, '
    "POST /letters/ID/replay"
)
"""All commands, for messages."""


class Commanded(Protocol):
    """A running service, as commands reach it. Methods may be called by any thread, and raise `StreamerError` where a
    name or a value is wrong, or the service does not run."""

    def pause(self, source: str) -> None:
        """Poll this source no more, until `resume`."""

    def resume(self, source: str) -> None:
        """Poll this source again."""

    def weigh(self, variant: str, weight: float) -> None:
        """Give this variant of the models another share of the records."""

    def reload(self) -> None:
        """Look now whether there are new files of the models."""


def is_command(path: str) -> bool:
    """Whether the path is that of a command, which is sent as POST."""
    return path.startswith(("/sources/", "/variants/")) or path == "/models/reload"


def forbidden(request: HttpRequest, token: str | None, hosts: Collection[str]) -> Answer | None:
    """The answer to a request that may give no commands; `None` to one that may.

    It needs the token: without a configured one there are no commands. A page in a browser must be of this port, or of
    a host that is listed in `hosts`.
    """
    if request.method != "POST":
        return answered(405, error="this is a command: send it as POST")
    return unadmitted(request, token, hosts, "there are no commands")


def unadmitted(request: HttpRequest, token: str | None, hosts: Collection[str], what: str) -> Answer | None:
    """The answer to a request that lacks the token, or is from a foreign page; `None` to another one.

    Without a configured token nobody gets what the request asks for; `what` says so.
    """
    if token is None:
        option = "streamer serve: --control-token-file"
        return answered(403, error=f"{what} without a token: set control.token ({option}), and send it")
    origin = str(request.headers.get("Origin", ""))
    if origin and not _is_own(origin, str(request.headers.get("Host", "")), hosts):
        why = f"pages of {origin} may give no commands; add the host to control.hosts if it is this port's"
        return answered(403, error=why)
    if not bears(str(request.headers.get("Authorization", "")), token):
        return refusal(token)
    return None


def service_of(request: HttpRequest, names: Collection[str]) -> str | Answer:
    """The name of the service that a command is for: that of the query, or the only one there is."""
    given = parse_qs(request.query).get("service")
    if given is not None:
        if given[-1] in names:
            return given[-1]
        return answered(404, error=f'there is no service "{given[-1]}" here; there are {", ".join(sorted(names))}')
    if len(names) == 1:
        return next(iter(names))
    return answered(400, error=f"say which service: ?service=NAME, one of {', '.join(sorted(names))}")


def carried_out(request: HttpRequest, name: str, service: Commanded) -> Answer:
    """Carries out the command for the service of that name, and says what was done."""
    try:
        match request.parts:
            case ["sources", source, "pause"]:
                service.pause(source)
                return answered(200, service=name, source=source, state="paused")
            case ["sources", source, "resume"]:
                service.resume(source)
                return answered(200, service=name, source=source, state="running")
            case ["variants", variant]:
                weight = _weight_in(request.body)
                service.weigh(variant, weight)
                return answered(200, service=name, variant=variant, weight=weight)
            case ["models", "reload"]:
                service.reload()
                return answered(200, service=name, models="looking for new files")
    except StreamerError as error:
        return answered(400, error=str(error))
    return NO_COMMAND


def answered(status: int, **facts: Any) -> Answer:
    """An answer with these facts as JSON."""
    headers = {"Allow": "POST"} if status == 405 else {}
    return Answer(status, masked(json.dumps(facts, ensure_ascii=False)).encode("utf-8", "replace"), headers=headers)


NO_COMMAND: Final = answered(404, error=f"there is no such command; there are {SHOWN}")


def _weight_in(body: bytes) -> float:
    wrong = 'a weight is sent as JSON, {"weight": 5}'
    try:
        data = json.loads(body)
    except ValueError as error:
        raise StreamerError(f"{wrong}; this is none: {error}") from error
    if not isinstance(data, dict) or set(data) != {"weight"}:
        raise StreamerError(f"{wrong}, and nothing else")
    weight = data["weight"]
    if isinstance(weight, bool) or not isinstance(weight, (int, float)):
        raise StreamerError(f"{wrong}: a number is needed")
    try:
        return float(weight)
    except OverflowError:
        raise StreamerError(f"{wrong}: the number is too large") from None


def _is_own(origin: str, host: str, hosts: Collection[str]) -> bool:
    try:
        address = urlsplit(origin.lower())
        return address.netloc == host.lower() or address.hostname in hosts
    except ValueError:
        return False
