"""`Lineup`: the versions of a service's models that are open and in use together."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from pipelines.executors.executor import Executor
from pipelines.observe.meters import Reading
from streamer.models.choosing import Choosing
from streamer.models.settings import CURRENT
from streamer.models.sharing import ALONE, Sharing
from streamer.models.tally import Counted
from streamer.models.version import Version


class Lineup:
    """A version for each variant, and older ones that are kept. It does not change: a new version makes a new one."""

    def __init__(self, variants: Mapping[str, Version], sharing: Sharing = ALONE, kept: Sequence[Version] = ()) -> None:
        self.variants = dict(variants)
        """By name; `current` is the first."""
        self.kept = tuple(kept)
        """Older versions of `current`, the latest first."""
        self.sharing = sharing
        """How records are shared among them; the same for all lineups of a service."""
        self.executors: Sequence[Executor] = self.current.executors
        """As many as `limits.parallel`: each runs batches through all versions."""
        names = sharing.choice.names
        if len(names) > 1 or (sharing.asks and self.kept):
            open_ = [*((name, self.variants[name]) for name in names), *((CURRENT, version) for version in self.kept)]
            self.executors = [
                Choosing([(name, version, version.executors[slot]) for name, version in open_], sharing)
                for slot in range(len(self.current.executors))
            ]

    @property
    def current(self) -> Version:
        """The version of the variant `current`."""
        return self.variants[CURRENT]

    @property
    def versions(self) -> list[Version]:
        """All that are open, each once."""
        return list(dict.fromkeys([*self.variants.values(), *self.kept]))

    @property
    def pipelines(self) -> list[Executor]:
        """The open pipelines of all versions that records may get, also of those that are kept; not of a shadow."""
        versions = dict.fromkeys([*(self.variants[name] for name in self.sharing.choice.names), *self.kept])
        return [executor for version in versions for executor in version.executors]

    @property
    def names(self) -> list[str]:
        """The names by which requests may ask for one of several versions, their labels and their numbers."""
        shared = self.sharing.choice.names
        if len(shared) == 1 and not (self.sharing.asks and self.kept):
            return []
        versions = [*(self.variants[name] for name in shared), *self.kept]
        labels = [label for version in versions for label in (version.number, version.label)]
        return list(dict.fromkeys([*shared, *labels]))

    def weigh(self, name: str, weight: float) -> None:
        """Give a variant another weight from the next batch on. Raises as `Choice.weigh` does."""
        self.sharing.choice.weigh(name, weight)

    def documents(self) -> list[dict[str, object]]:
        """Each variant with its version, its weight and what it has done, for people and programs."""
        weights, tally = self.sharing.choice.weights, self.sharing.tally
        if len(weights) == 1:
            return []
        return [self._document(name, weight, tally.of(name)) for name, weight in weights.items()]

    def _document(self, name: str, weight: float, counted: Counted) -> dict[str, object]:
        version = self.variants[name]
        return {
            "name": name,
            "version": version.label,
            "state": version.state,
            "weight": weight,
            **({"reason": version.reason} if version.reason else {}),
            "records": counted.records,
            "ok": counted.ok,
            "failed": counted.failed,
            "dropped": counted.dropped,
            "seconds": round(counted.seconds, 6),
        }

    def readings(self) -> Iterator[Reading]:
        """The metrics of variants; none of a service without them."""
        weights = self.sharing.choice.weights
        if len(weights) == 1:
            return
        samples = [((name, self.variants[name].label), weight) for name, weight in weights.items()]
        text = "What a variant of the models weighs, and its version."
        yield Reading("streamer_variant_weight", text, "gauge", ("variant", "version"), samples)
        yield from self.sharing.tally.readings()

    def replacing(self, opened: Mapping[str, Version]) -> Lineup:
        """The lineup with these versions in place of those of the same variants."""
        kept = [version for version in self.kept if version not in opened.values()]
        if CURRENT in opened:
            kept = [self.current, *kept][: self.sharing.keep]
        return Lineup({**self.variants, **opened}, self.sharing, kept)

    def close(self, busy: Collection[Executor] = ()) -> None:
        """Close all versions but those of the executors that are `busy`."""
        left = {id(inner) for executor in busy for inner in inside(executor)}
        for version in self.versions:
            for executor in version.executors:
                if id(executor) not in left:
                    executor.close()


def inside(executor: Executor) -> Sequence[Executor]:
    """The open pipelines behind an executor of a lineup."""
    return executor.inside if isinstance(executor, Choosing) else (executor,)
