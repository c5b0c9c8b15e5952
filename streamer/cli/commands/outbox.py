"""`streamer outbox`: shows messages that a sink refused after their records were acknowledged, and resends them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from streamer.cli.options import AsJson

if TYPE_CHECKING:
    from connectors.outbox.refused import Refusal

_SHOWN = 60
"""Bytes of a payload that are shown."""


def outbox(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file of an outbox, or a service file.")],
    resend: Annotated[
        bool, typer.Option("--resend", help="Queue the refused messages again, behind those that wait.")
    ] = False,
    forget: Annotated[bool, typer.Option("--forget", help="Delete the refused messages.")] = False,
    number: Annotated[
        list[int] | None, typer.Option("--number", "-n", help="Only the message of this number; may be repeated.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Show how many messages wait in an outbox, and those that its sink refused for good, with the reason.

    With --resend the service sends the refused messages again at its next start: first remove the cause of the refusal.
    With --forget they are deleted. Stop the service before either of them.
    """
    from streamer.cli.terminal import plain, quiet, say, say_json

    quiet()
    if resend and forget:
        raise typer.BadParameter("--resend and --forget exclude each other; choose one")
    paths = list(_paths(file))
    if number and len(paths) != 1:
        raise typer.BadParameter("--number needs the file of one outbox", param_hint="--number")
    from connectors.outbox.refused import forget as forgotten
    from connectors.outbox.refused import refusals
    from connectors.outbox.refused import resend as sent_again
    from connectors.outbox.wrapping import contents

    for path in paths:
        if resend or forget:
            count = (sent_again if resend else forgotten)(path, number)
            verb = "are sent again at the next start" if resend else "are forgotten"
            if as_json:
                say_json({"outbox": str(path), "resent" if resend else "forgotten": count})
            else:
                say(f"{path}: {count} refused messages {verb}")
            continue
        waiting = contents(path)
        every = refusals(path) if path.exists() else ()
        refused = [refusal for refusal in every if not number or refusal.number in number]
        if as_json:
            say_json({"outbox": str(path), "contents": waiting, "refused": list(map(_for_machines, refused))})
            continue
        say(f"{path}: {waiting}")
        for refusal in refused:
            size = f"{refusal.bytes:,} bytes"
            plain(f"{refusal.number}  {_time(refusal)}  {size}{_topic(refusal)}: {refusal.reason}", "yellow")
            plain(f"  {_payload(refusal)}", "dim")
    return 0


def _paths(file: Path) -> Iterator[Path]:
    """The outbox files of a service file's services; any other file is an outbox itself."""
    from pipelines.errors import DefinitionError
    from streamer.cli.route import is_service_file
    from streamer.cli.trusted import services_of
    from streamer.definition.connectors.listed import sinks_of

    if not is_service_file(str(file)) and file.suffix not in (".yaml", ".yml", ".json"):
        yield file
        return
    paths: list[Path] = []
    for service in services_of(file):
        paths += [config.outbox.path for config in sinks_of(service) if config.outbox is not None]
    if not paths:
        raise DefinitionError(f"{file}: none of its sinks has an outbox")
    yield from paths


def _for_machines(refusal: Refusal) -> dict[str, Any]:
    import base64

    message = refusal.message
    payload, key = message.values[0], None if message.keys is None else message.keys[0]
    headers = () if message.headers is None else message.headers[0] or ()
    return {
        "number": refusal.number,
        "reason": refusal.reason,
        "refused": _time(refusal),
        "bytes": refusal.bytes,
        "topic": None if message.topics is None else message.topics[0],
        "key": None if key is None else bytes(key).decode(errors="replace"),
        "headers": [
            [name, None if value is None else bytes(value).decode(errors="replace")] for name, value in headers
        ],
        "payload": None if payload is None else base64.b64encode(payload).decode(),
    }


def _time(refusal: Refusal) -> str:
    return datetime.fromtimestamp(refusal.at, UTC).isoformat(timespec="seconds")


def _topic(refusal: Refusal) -> str:
    return "" if refusal.message.topics is None else f" for {refusal.message.topics[0]}"


def _payload(refusal: Refusal) -> str:
    payload = refusal.message.values[0]
    if payload is None:
        return "no payload (a tombstone)"
    start = bytes(payload[:_SHOWN])
    more = " ..." if len(payload) > _SHOWN else ""
    text = start.decode(errors="replace")
    return f"{text if text.isprintable() and chr(0xFFFD) not in text else start.hex(' ')}{more}"
