"""Builds what the run thread needs once the pipeline and the sinks of a service are open: its delivery and intakes."""

from __future__ import annotations

from typing import Any

from connectors.source import Replays
from streamer.agent.assembly import Assembly
from streamer.agent.batchqueue import RunInbox
from streamer.agent.blockdecoder import BlockDecoder, Decoding
from streamer.agent.intakeloop import IntakeLoop
from streamer.agent.intakes import Intake, Intakes
from streamer.agent.runs.batchruns import BatchRuns
from streamer.agent.runs.dangerous import Dangerous
from streamer.agent.sourcewatch import SourceWatch
from streamer.agent.where import Where
from streamer.batching.batcher import Batcher, SoftBatcher
from streamer.batching.registry import built
from streamer.batching.rounds import RoundBatcher
from streamer.batching.waiting import WaitRule
from streamer.definition.settings import BatcherSettings
from streamer.delivery.confirming import Barrier, Confirming, Upstream
from streamer.delivery.delivery import Delivery
from streamer.delivery.guarantee import guarantee
from streamer.delivery.ledger import Ledger
from streamer.delivery.transactions import Transactions
from streamer.observe.metrics import RunMeters, ServiceMeters
from streamer.routing.into import Into
from streamer.routing.recordtime import RecordTime
from streamer.routing.sinkroute import Sinks
from streamer.state.agreement import agreed, check_saved, check_state, check_topics, check_transactions
from streamer.state.checkpoints import Checkpoints
from streamer.state.store import StateStore
from streamer.state.topicstore import TopicStore
from streamer.state.transactionalcheckpoints import TransactionalCheckpoints


def opened_delivery(assembly: Assembly, ledger: Ledger, upstream: Upstream, meters: RunMeters, log: Any) -> Delivery:
    """The delivery of a service whose sinks are open, with this ledger. Raises `DefinitionError` if its steps do not
    fit the delivery guarantee."""
    service, sinks = assembly.service, Sinks(assembly.routes, assembly.letters)
    confirming: Confirming
    if (first := assembly.transactional) is None:
        confirming = Barrier(sinks.all, meters)
    else:
        executor = assembly.executor
        check_transactions(service, executor.saving_steps, executor.unsaved_steps)
        confirming = Transactions(sinks, first, service.transactions, ledger, upstream, meters, log)
    replays = {name: source.replays for name, _, source in assembly.sources}
    return Delivery(service, sinks, replays, ledger, confirming, upstream, meters, log)


def keep_together(assembly: Assembly) -> bool:
    """Have sources keep partitions of the same number together, if steps join records of several topics.

    Returns whether there are such steps. Raises `DefinitionError` if a source cannot keep them together.
    """
    steps = assembly.executor.saving_steps
    if not any(step.joined_topics for step in steps.values()):
        return False
    if assembly.connected:
        check_topics(assembly.service, steps)
    for _, _, source in assembly.sources:
        source.keep_together()
    return True


def opened_checkpoints(
    assembly: Assembly, delivery: Delivery, intakes: Intakes, log: Any
) -> Checkpoints[StateStore] | None:
    """The checkpoints of a service whose steps save their state; `None` if it is not saved.

    Raises `DefinitionError` if the service does not say where, or the saved state does not fit the steps.
    """
    steps = assembly.executor.saving_steps
    if not steps:
        return None
    service = assembly.service
    if assembly.state is None:
        if assembly.connected:
            check_state(service, steps)
        return None
    counting = [name for name, _, source in assembly.sources if source.replays is Replays.OFFSET]
    identities = agreed(assembly.state, steps, log)
    store = assembly.state
    store.attach(intakes, lambda saved: check_saved(store, saved, steps))
    given = identities, lambda: assembly.executor, delivery.ledger, counting, intakes.acknowledged, log
    checkpoints: Checkpoints[StateStore]
    if isinstance(delivery.confirming, Transactions) and isinstance(store, TopicStore):
        checkpoints = delivery.confirming.state = TransactionalCheckpoints(store, *given)
    else:
        checkpoints = Checkpoints(store, *given)
    for _, _, source in assembly.sources:
        source.noted = checkpoints.note
    return checkpoints


def built_intakes(
    assembly: Assembly,
    batch: BatcherSettings,
    runs: BatchRuns,
    inbox: RunInbox,
    meters: ServiceMeters,
    log: Any,
    rule: WaitRule | None,
    dangerous: Dangerous | None,
) -> list[Intake]:
    """The intakes of the sources, which are not open yet. `rule` says how long records wait for others, `dangerous`
    learns what was acknowledged."""
    service = assembly.service
    return [
        Intake(
            IntakeLoop(
                SourceWatch(source, service.limits.stuck, log),
                block_decoder(assembly, index, batch, meters, log),
                _batcher(assembly, batch, runs, rule),
                inbox,
                guarantee(service.delivery),
                meters.sources[name],
                log,
                service.limits.parallel,
                None if dangerous is None else dangerous.acknowledged,
                commits=assembly.sources_commit,
                catches_up=assembly.executor.stateful,
            )
        )
        for index, (name, _, source) in enumerate(assembly.sources)
    ]


def block_decoder(
    assembly: Assembly, index: int, batch: BatcherSettings, meters: ServiceMeters, log: Any
) -> BlockDecoder:
    """Decodes the records of the source of this number, once the pipeline is open."""
    name, config, _ = assembly.sources[index]
    pixels = None if batch.type == "hard" else assembly.service.limits.pixels
    samples = batch.max_records if batch.type == "soft" else None
    return BlockDecoder(
        name,
        assembly.codecs[name],
        index,
        Into.of(config),
        RecordTime.of(config, meters.sources[name].untimed, log),
        Where.of(config, log),
        Decoding(assembly.wanted(), pixels, samples, assembly.opens_images),
        log,
    )


def _batcher(assembly: Assembly, batch: BatcherSettings, runs: BatchRuns, rule: WaitRule | None) -> Batcher:
    batcher = built(batch)
    if isinstance(batcher, RoundBatcher):
        batcher.rounds = runs.rounds
    if isinstance(batcher, SoftBatcher):
        batcher.wait_rule = rule
    # Not for batches of an exact size, nor where steps hold state or records are traced.
    service = assembly.service
    ahead = guarantee(service.delivery).may_gather_ahead and not (assembly.executor.stateful or service.debug)
    if batch.type == "soft" and ahead:
        batcher.sizer = runs.sizer
    return batcher
