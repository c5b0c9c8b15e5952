"""Whether saved state fits the steps of a service: by which name it is saved, and the fields that shape it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from pipelines.errors import DefinitionError
from pipelines.steps.base import Step
from streamer.definition.refusals import place_of
from streamer.definition.service import Service
from streamer.definition.settings import StateTopicSettings
from streamer.delivery.guarantee import guarantee
from streamer.state.store import SavedStep, StateStore


def check_answers(service: Service) -> None:
    """Raise `DefinitionError` if a sink answers requests; only for a pipeline that depends on earlier records."""
    for sink in service.sinks:
        if sink.awaited and sink.takes_from:
            raise DefinitionError(
                f'{place_of(service.written, "sink")}sink "{sink.label}" answers each request, and a step of the '
                "pipeline holds records to make one result of several, or remembers earlier ones; put that step into a "
                "service without such a sink"
            )


def check_state(service: Service, steps: Mapping[str, Step]) -> None:
    """Raise `DefinitionError` if steps remember records that their source replays, and nothing says where."""
    if service.state is not None or not steps or all(source.perishable for source in service.sources):
        return
    name = next(iter(steps))
    raise DefinitionError(
        f"{place_of(service.written, 'pipeline')}state: step {name} remembers earlier records, and nothing says where "
        "that is kept. Add to the service state: {path: state.db}, to go on with it after a restart, or state: memory, "
        "to begin anew"
    )


def check_transactions(service: Service, saving: Collection[str], unsaved: Collection[str]) -> None:
    """Raise `DefinitionError` if transactions have the results of steps that remember records, and not their state.

    These are the names of the steps whose state can be saved, and of all others that remember records.
    """
    if not guarantee(service.delivery).transactional or not (saving or unsaved):
        return
    where = f"{place_of(service.written, 'delivery')}delivery: {service.delivery}:"
    if unsaved:
        raise DefinitionError(
            f"{where} step {next(iter(unsaved))} remembers earlier records, and nothing saves what it remembers: when "
            "a transaction is aborted, its records come again, and would count twice; use at_least_once"
        )
    if isinstance(service.state, StateTopicSettings):
        return
    name = next(iter(saving))
    memory = "; in memory it would not go back when a transaction is aborted" if service.state == "memory" else ""
    raise DefinitionError(
        f"{where} step {name} remembers earlier records, which is to be saved in the transaction of its "
        f"results{memory}. Write state: {{topic: NAME}}, or use at_least_once"
    )


def check_topics(service: Service, steps: Mapping[str, Step]) -> None:
    """Raise `DefinitionError` if a step joins topics, and a source may leave some of their partitions to others."""
    for name, step in steps.items():
        if not step.joined_topics:
            continue
        for source in service.sources:
            if source.parted is not None:
                where = place_of(service.written, "source")
                raise DefinitionError(
                    f"{where}source {source.label}: {source.parted}: step {name} joins records of "
                    f"{', '.join(step.joined_topics)}"
                )


def identities(steps: Mapping[str, Step]) -> dict[str, str]:
    """The names by which the state of steps is saved, by their names in the pipeline.

    A step that has no name is called by its type, the second of a type `TYPE-2`: not by its place, so that a step which
    is put before it takes no state away.
    """
    known: dict[str, str] = {}
    counts: dict[str, int] = {}
    for name, step in steps.items():
        outer, _, last = name.rpartition("/")
        prefix = f"{outer}/" if outer else ""
        if re.fullmatch(rf"\d+:{re.escape(step.type_name)}", last) is None:
            known[name] = name
            continue
        unnumbered = prefix + step.type_name
        counts[unnumbered] = counts.get(unnumbered, 0) + 1
        known[name] = unnumbered if counts[unnumbered] == 1 else f"{unnumbered}-{counts[unnumbered]}"
    return known


def agreed(store: StateStore, steps: Mapping[str, Step], log: Any) -> dict[str, str]:
    """`identities`, once what is saved is known to fit the steps, which the store remembers from now on.

    Raises `DefinitionError` naming the step and the field if it does not fit. State of other steps is left as it is,
    with a warning.
    """
    names = identities(steps)
    saved = store.steps()
    present = {names[name]: SavedStep(step.type_name, _shape(step)) for name, step in steps.items()}
    for identity, before in saved.items():
        now = present.get(identity)
        if now is None:
            log.warning(
                "there is saved state of a step that the pipeline does not have; remove it with streamer state forget "
                "--step, or give a step this name",
                step=identity,
            )
        elif before.type:
            _check(store, identity, before, now)
    store.define(present)
    return names


def check_saved(store: StateStore, saved: Mapping[str, SavedStep], steps: Mapping[str, Step]) -> None:
    """Raise `DefinitionError`, naming step and field, if the state saved in the store does not fit the steps."""
    names = identities(steps)
    for name, step in steps.items():
        if (before := saved.get(names[name])) is not None:
            _check(store, names[name], before, SavedStep(step.type_name, _shape(step)))


def _shape(step: Step) -> dict[str, Any]:
    return step.model_dump(mode="json", include=set(step.shapes))


def _check(store: StateStore, identity: str, before: SavedStep, now: SavedStep) -> None:
    if store.commits_positions:
        anew = f"streamer state forget SERVICE.yaml --step {identity}, with the file of this service"
    else:
        anew = f"streamer state forget {store.place} --step {identity}"
    remedy = f"go back, or let it begin anew: {anew}"
    if before.type != now.type:
        raise DefinitionError(f"state: {identity} is a {now.type}, and its saved state is of a {before.type}; {remedy}")
    for field in before.fields.keys() | now.fields.keys():
        was, is_now = before.fields.get(field), now.fields.get(field)
        if was != is_now:
            raise DefinitionError(
                f"state: {identity} has the {field} {is_now!r}, and its saved state was made with {was!r}; {remedy}"
            )
