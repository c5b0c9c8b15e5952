"""Records of tests as requests of the Open Inference Protocol, with the element types that the pipeline takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from connectors.codecs.registry import codec_config
from connectors.config import SourceConfig
from pipelines.data.data import Data, as_data
from pipelines.errors import DataError
from streamer.agent.assembly import ports_for
from streamer.definition.openedpipeline import ports_at_ends
from streamer.definition.service import Service


def fitting(service: Service, source: SourceConfig) -> Callable[[Mapping[str, Any]], Data]:
    """A function that gives the values of a record as a client of this source sends them.

    Numbers of a test have no element types: the models at the pipeline's ends say these where the source's codec is
    `inference`. A record that does not fit stays as it is, so that it fails as a client's request does.
    """
    if codec_config(source.codec).type != "inference":
        return as_data
    # Imported here, as most services have no requests.
    from streamer.client.inputs import Inputs

    inputs = Inputs("the model", ports_for(service, source, ports_at_ends(service)))

    def fitted(record: Mapping[str, Any]) -> Data:
        data = as_data(record)
        try:
            arrays = inputs.tensors(data).arrays
        except DataError:
            return data
        texts = {name: array.tolist() if array.dtype.kind == "O" else array for name, array in arrays.items()}
        return Data.trusted(texts, data.metadata)

    return fitted
