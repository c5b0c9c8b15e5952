"""`RepositoryRequests`: Triton's repository extension over HTTP: the index, and loading and unloading of models."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from connectors.http.endpoint.bodies import Bodies, Receive
from connectors.http.endpoint.config import HttpSourceConfig
from connectors.http.endpoint.repository.models import OFF, Models, Outcome, Verb
from connectors.http.endpoint.request import JSON, Answer

INDEX: Final = "/v2/repository/index"
COMMANDS: Final = "/v2/repository/models/"
_VERBS: Final[Mapping[str, Verb]] = {"/load": "load", "/unload": "unload"}
LONGEST: Final = 1 << 20
"""Bytes of a command."""


class RepositoryRequests:
    """Answers requests that look into the repository's folder, or wait until a model is loaded."""

    def __init__(self, config: HttpSourceConfig, models: Models) -> None:
        self._config = config.model_copy(update={"max_body": min(config.max_body, LONGEST)})
        self._models = models
        self._bodies = Bodies()

    def take(self, method: str, path: str) -> bool:
        """Whether these requests are answered here."""
        if method != "POST":
            return False
        return path == INDEX or (self._models.repository is not None and path.startswith(COMMANDS))

    async def answer(
        self, path: str, headers: Mapping[bytes, bytes], receive: Receive, *, is_there: bool
    ) -> Answer | None:
        """The answer to a request that `take` accepts; `None` if its client has gone."""
        body = await self._bodies.read(self._config, headers, receive, None, is_there=is_there)
        if body is None or isinstance(body, Answer):
            return body
        asked = _object(body)
        if isinstance(asked, Answer):
            return asked
        if path == INDEX:
            only_ready = asked.get("ready", False)
            if not isinstance(only_ready, bool):
                return Answer.refusal(400, "ready is true or false")
            index = await indexed(self._models, only_ready=only_ready)
            return Answer(200, (JSON,), json.dumps(index, ensure_ascii=False).encode())
        verb = next((verb for end, verb in _VERBS.items() if path.endswith(end)), None)
        if verb is None:
            return Answer.refusal(404, f"there is no {path}; there are {COMMANDS}NAME/load and {COMMANDS}NAME/unload")
        parameters = asked.get("parameters") or {}
        if not isinstance(parameters, dict):
            return Answer.refusal(400, "parameters is an object, {NAME: VALUE}")
        name = path[len(COMMANDS) : -len(verb) - 1]
        outcome = await commanded(self._models, verb, name, parameters)
        if outcome.error is not None:
            return Answer.refusal(outcome.status, outcome.error)
        return Answer(200, (JSON,), json.dumps({"name": outcome.name}, ensure_ascii=False).encode())


async def indexed(models: Models, *, only_ready: bool) -> list[dict[str, str]]:
    """The index of the repository; in another thread where that looks into a folder."""
    index = models.index() if models.repository is None else await asyncio.to_thread(models.index)
    return [entry for entry in index if entry["state"] == "READY"] if only_ready else index


async def commanded(models: Models, verb: Verb, name: str, parameters: Mapping[str, Any]) -> Outcome:
    """What became of a command, once it was carried out."""
    repository = models.repository
    if repository is None or not models.controlled:
        return Outcome(name, 403, OFF)
    # Also if its client goes away: others may wait for the same.
    return await asyncio.shield(asyncio.wrap_future(repository.command(verb, name, parameters)))


def _object(body: bytes | memoryview) -> dict[str, Any] | Answer:
    if not len(body):
        return {}
    try:
        value = json.loads(bytes(body))
    except (ValueError, RecursionError) as error:
        return Answer.refusal(400, f"the body is no JSON: {error}")
    return value if isinstance(value, dict) else Answer.refusal(400, "the body is an object of JSON, or empty")
