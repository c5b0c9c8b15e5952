"""`streamer state`: shows what steps remember in a state file, and forgets parts of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from streamer.cli.options import AsJson

_SHOWN = 50
"""Keys that are shown one by one."""


def state(
    action: Annotated[Literal["show", "forget"], typer.Argument(metavar="show|forget", help="What to do.")],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file of `state: {path: ...}`.")],
    step: Annotated[str | None, typer.Option("--step", help="Only the state of this step.")] = None,
    key: Annotated[
        str | None, typer.Option("--key", help='Only the state of this key: pump-1, or for several values ["a",3].')
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Show what the steps of a service remember, by step and key, or forget it.

    `forget` without --step and --key deletes everything, also the positions up to which records are in the state. Stop
    the service before.
    """
    from dataclasses import asdict

    from streamer.cli.terminal import plain, quiet, say, say_json
    from streamer.state.contents import contents, forget, keys

    quiet()
    if action == "forget":
        count = forget(file, step, key)
        if as_json:
            say_json({"state": str(file), "forgotten": count})
        else:
            say(f"{file}: forgotten is the state of {count} {'key' if count == 1 else 'keys'}")
        return 0
    saved = contents(file)
    shown = keys(file, step, key)
    if as_json:
        say_json({"state": str(file), **asdict(saved), "keys": list(map(asdict, shown))})
        return 0
    say(f"{file}: service {saved.service} on {saved.host}, saved {saved.checkpoint} times")
    for place in saved.positions:
        position = "" if place["position"] is None else f" up to position {place['position']}"
        plain(f"  {place['source']} {place['partition']}{position}", "dim")
    for name, about in saved.steps.items():
        say(f"{name}: {about['keys']} keys, {about['bytes']:,} bytes")
    for each in shown[:_SHOWN]:
        plain(f"  {each.step}  {each.key}  {each.bytes:,} bytes ({each.source} {each.partition})")
    if len(shown) > _SHOWN:
        plain(f"  and {len(shown) - _SHOWN} more; --step and --key choose", "dim")
    return 0
