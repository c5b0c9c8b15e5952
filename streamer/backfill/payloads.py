"""`PayloadDecoder`: decodes records of files as a service decodes those of its source."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

import numpy as np

from connectors.codecs.registry import codec_config, codec_of
from connectors.config import SourceConfig
from connectors.records import Records
from pipelines.executors.executor import Executor
from pipelines.hotpath import choosing
from pipelines.observe.meters import Counts
from streamer.agent.blockdecoder import BlockDecoder, Decoding
from streamer.agent.decodedbatch import DecodedBatch
from streamer.agent.where import Where
from streamer.batching.batcher import Closed
from streamer.definition.service import Service
from streamer.observe.logs import logger
from streamer.routing.into import Into
from streamer.routing.recordtime import RecordTime

JSON: Final = frozenset({"json", "konduit-json"})
"""The codecs of lines, by their type."""
IMAGES: Final = frozenset({"image"})
"""The codecs of image files."""


class PayloadDecoder:
    """Decodes by codec, `into`, `time` and `where` of a source of the service. Owned by one thread."""

    def __init__(self, service: Service, config: SourceConfig, executor: Executor, index: int) -> None:
        """`executor`: the service's open pipeline. `index` tells the numbers of its rows from those of others.

        Raises the errors of building the codec.
        """
        log = logger(service=service.name)
        limits, batch = service.limits, service.batch
        self.source = config.label
        """The name of the source."""
        self.image_key = str(getattr(codec_config(config.codec), "key", "image"))
        """The key of an image, if it is the codec of images."""
        with choosing(service.hot_path):
            codec = codec_of(config.codec)
        self._decoder = BlockDecoder(
            config.label,
            codec,
            index,
            Into.of(config),
            RecordTime.of(
                config, Counts("streamer_untimed_records", "Records without a time of their own.", ("source",)), log
            ),
            Where.of(config, log),
            Decoding(
                executor.reads,
                None if batch.type == "hard" else limits.pixels,
                batch.max_records if batch.type == "soft" else None,
                executor.opens_images,
            ),
            log,
        )

    def decoded(self, records: Records) -> Iterable[DecodedBatch]:
        """The records in batches, in order. Raises `ConnectorError` if none can be decoded, for lack of a schema."""
        return self._decoder.decoded(Closed(records, "records", 0.0), _waited) or ()


def source_for(service: Service, codecs: Collection[str]) -> SourceConfig:
    """The source whose records are like those of files: the first with one of these codecs.

    If none has, the first, with the first of the codecs by name.
    """
    for source in service.sources:
        if codec_config(source.codec).type in codecs:
            return source
    return service.sources[0].model_copy(update={"codec": min(codecs)})


def codec_setting(service: Service) -> str | Mapping[str, Any]:
    """The codec of results as lines: that of the first sink that writes JSON, else `json`."""
    settings = [sink.codec for sink in service.sinks if codec_config(sink.codec).type in JSON]
    return settings[0] if settings else min(JSON)


def _waited(seconds: float, reason: str) -> bool:
    time.sleep(seconds)
    return True


def records_of(decoded: DecodedBatch) -> int:
    """How many records a batch has, those that failed and those that pass by among them."""
    batch = decoded.batch
    count = batch.size if batch.row_range is not None else len(np.unique(batch.rows))
    return count + len(decoded.failed) + len(decoded.passed)
