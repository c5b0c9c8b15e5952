"""`streamer state`: shows what the steps of a service remember, and forgets parts of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streamer.cli.options import AsJson

if TYPE_CHECKING:
    from streamer.definition.service import Service
    from streamer.state.contents import SavedState

_SHOWN = 50
"""Keys that are shown one by one."""


def state(
    action: Annotated[Literal["show", "forget"], typer.Argument(metavar="show|forget", help="What to do.")],
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A service file, or the file of its `state: {path: ...}`.")
    ],
    step: Annotated[str | None, typer.Option("--step", help="Only the state of this step.")] = None,
    key: Annotated[
        str | None, typer.Option("--key", help='Only the state of this key: pump-1, or for several values ["a",3].')
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Show what the steps of a service remember, by step and key, or forget it.

    Stop the service before it is to forget. `forget` without --step and --key deletes everything: of a file also the
    positions up to which records are in the state; with a topic the service goes on at the positions of its group.
    """
    from streamer.cli.terminal import quiet, say, say_json

    quiet()
    places = list(_places(file))
    if action == "forget" and len(places) > 1:
        raise typer.BadParameter(f"{file} has {len(places)} services with state; write one into a file of its own")
    for saved in places:
        with saved:
            if action == "show":
                (_show_json if as_json else _show)(saved, step, key)
                continue
            count = saved.forget(step, key)
        if as_json:
            say_json({"state": saved.place, "forgotten": count})
        else:
            say(f"{saved.place}: forgotten is the state of {count} {'key' if count == 1 else 'keys'}")
    return 0


def _places(file: Path) -> Iterator[SavedState]:
    """Where the services of a service file save their state; any other file is such a place itself."""
    from pipelines.errors import DefinitionError
    from streamer.cli.route import resembles_file
    from streamer.cli.trusted import services_of
    from streamer.state.filecontents import FileContents

    if not resembles_file(str(file)):
        yield FileContents(file)
        return
    places = [place for service in services_of(file) if (place := _place_of(service)) is not None]
    if not places:
        raise DefinitionError(f"{file}: it saves no state; with state: memory it is gone when the service ends")
    yield from places


def _place_of(service: Service) -> SavedState | None:
    from streamer.definition.settings import StateSettings, StateTopicSettings
    from streamer.state.filecontents import FileContents
    from streamer.state.topiccontents import TopicContents

    if isinstance(service.state, StateTopicSettings):
        source = service.sources[0]
        return TopicContents(source.build_state(service.state.topic), service.name, source.label)
    return FileContents(service.state.path) if isinstance(service.state, StateSettings) else None


def _show(saved: SavedState, step: str | None, key: str | None) -> None:
    from streamer.cli.terminal import plain, say
    from streamer.state.contents import Chosen, KeyState, Totals

    about, totals, chosen = saved.about(), Totals(saved), Chosen(saved, step, key)
    shown: list[KeyState] = []
    more = 0
    for partition in saved.partitions():
        totals.add(partition)
        states = chosen.of(partition)
        more += len(states)
        shown += states[: _SHOWN - len(shown)]
    chosen.check()
    often = "" if about["checkpoint"] is None else f" on {about['host']}, saved {about['checkpoint']} times"
    say(f"{saved.place}: service {about['service']}{often}")
    for place in totals.positions:
        position = "" if place["position"] is None else f" up to position {place['position']}"
        size = f"{place['keys']} keys, {place['bytes']:,} bytes"
        plain(f"  {place['source']} {place['partition']}{position}: {size}", "dim")
    for name, each in sorted(totals.steps.items()):
        say(f"{name}: {each['keys']} keys, {each['bytes']:,} bytes")
    for state in shown:
        plain(f"  {state.step}  {state.key}  {state.bytes:,} bytes ({state.source} {state.partition})")
    if more > len(shown):
        plain(f"  and {more - len(shown)} more; --step and --key choose", "dim")


def _show_json(saved: SavedState, step: str | None, key: str | None) -> None:
    from dataclasses import asdict

    from streamer.cli.terminal import say_json_of
    from streamer.state.contents import Chosen, KeyState, Totals

    totals, chosen = Totals(saved), Chosen(saved, step, key)

    def states() -> Iterator[KeyState]:
        for partition in saved.partitions():
            totals.add(partition)
            yield from chosen.of(partition)

    say_json_of(
        {"state": saved.place, **saved.about()},
        "keys",
        map(asdict, states()),
        lambda: {"positions": totals.positions, "steps": totals.steps},
    )
    chosen.check()
