"""`ServedModel`: a service as the listener knows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from connectors.codecs.registry import codec_config
from connectors.http.endpoint.config import HttpSourceConfig
from connectors.http.endpoint.counts import Counts
from connectors.http.endpoint.inbox import Inbox
from connectors.http.endpoint.request import Answer, Request
from connectors.source import Served

INFERENCE: Final = "inference"
RETRY: Final = (b"retry-after", b"1")


@dataclass(slots=True, eq=False)
class ServedModel:
    """A service whose clients send requests to the listener: in the Open Inference Protocol a model."""

    name: str
    config: HttpSourceConfig
    served: Served
    inbox: Inbox
    counts: Counts
    codec: str = field(init=False)
    """The type of the codec that reads the bodies."""
    trouble: str | None = field(init=False, default=None)
    """Why the service was not ready when the listener looked last."""

    successor: ServedModel | None = field(init=False, default=None)
    """The model that has taken its place. Requests whose bodies had not arrived by then are for that one."""

    def __post_init__(self) -> None:
        self.codec = codec_config(self.config.codec).type

    @property
    def version(self) -> str:
        """The version that answers; an empty version of a request, or none, means it."""
        return self.served.version()

    @property
    def versions(self) -> list[str]:
        """All versions that answer, and the names of variants; that which answers by itself is the first."""
        return list(dict.fromkeys([self.version, *self.served.names()]))

    @property
    def speaks_inference(self) -> bool:
        """Whether its requests are those of the Open Inference Protocol."""
        return self.codec == INFERENCE

    def put(self, request: Request) -> Answer | None:
        """Let a request wait to be run; the answer 503 if the service is not ready, or has no place for it."""
        if self.successor is not None:
            return self.successor.put(request)
        if self.trouble is not None:
            # It may have ended since.
            self._ask()
            if self.trouble is not None:
                return Answer.refusal(503, f"the service is not ready: {self.trouble}", RETRY)
        if self.inbox.put(request):
            return None
        if not self.inbox.is_open:
            return Answer.refusal(503, "the service is stopping; send the request again", RETRY)
        return Answer.refusal(503, "too many requests wait; try again later (max_waiting, max_held)", RETRY)

    def look(self, now: float) -> None:
        """Answer requests whose deadline is over, and see whether the service is ready; `now` as `time.monotonic`."""
        self.inbox.expire(now)
        self._ask()

    def _ask(self) -> None:
        try:
            self.trouble = self.served.trouble()
        except Exception as error:  # noqa: BLE001 - the listener goes on for the other services
            self.trouble = f"{type(error).__name__}: {error}"
