"""What stateful steps know and hold goes over from one version of the models to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pipelines.data.result import Result
from pipelines.errors import StreamerError
from pipelines.executors.state.handover import differences, flushed, hand_over
from streamer.models.version import Version


def check_state(version: Version, current: Version, *, discard: bool) -> None:
    """Raise `StreamerError` if a version cannot go on with what the stateful steps of the current one know.

    `discard`: steps that differ may begin anew.
    """
    before, after = current.executors[0], version.executors[0]
    different = differences(before, after)
    if different and not discard:
        raise StreamerError(
            f"it has other stateful steps than version {current.label}: {', '.join(different.values())}; restart the "
            "service, or set models: {state: discard}, with which these steps begin anew"
        )
    if after.stateful and not before.stateful:
        raise StreamerError(
            f"it has steps that hold records or state, and version {current.label} has none: for them batches are made "
            "in another way; restart the service"
        )


def carry(before: Version, after: Version, emit: Callable[[Result], None]) -> Sequence[str]:
    """Have a version go on with the state of the one before, while neither runs.

    Rows that are held by steps which the new version does not go on with are finished by the version before, and
    `emit` gets the results. Returns the names of those steps. Raises `StepError` if a step does.
    """
    names: list[str] = []
    for old, new in zip(before.executors, after.executors, strict=True):
        names = list(differences(old, new))
        if names:
            emit(flushed(old, names))
        hand_over(old, new)
    return names
